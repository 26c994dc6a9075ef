#pragma once
#include "kernelpro/binding.h"
