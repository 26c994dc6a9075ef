#pragma once
#include "kernelpro/operators.h"
#include "kernelpro/dispatch.h"
#include "kernelpro/parallel.h"
