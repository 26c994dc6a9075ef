#pragma once
#include "kernelpro/types.h"
