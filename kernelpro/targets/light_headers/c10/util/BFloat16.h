#pragma once
#include "kernelpro/halves.h"
