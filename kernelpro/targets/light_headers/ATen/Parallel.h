#pragma once
#include "kernelpro/parallel.h"
