#pragma once
#include "kernelpro/dispatch.h"
