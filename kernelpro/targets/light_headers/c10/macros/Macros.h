#pragma once
#include "kernelpro/macros.h"
