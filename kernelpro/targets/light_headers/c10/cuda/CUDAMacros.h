#pragma once
#include "kernelpro/cuda.h"
