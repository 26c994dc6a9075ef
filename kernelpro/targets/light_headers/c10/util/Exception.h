#pragma once
#include "kernelpro/errors.h"
