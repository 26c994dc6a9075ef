#pragma once
#include "kernelpro/accessor.h"
