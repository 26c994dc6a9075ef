#pragma once
#include "torch/types.h"
#include "kernelpro/binding.h"
