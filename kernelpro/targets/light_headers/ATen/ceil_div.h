#pragma once
#include "kernelpro/ceil_div.h"
