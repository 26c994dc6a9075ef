// at::ceil_div.
#pragma once

#include <type_traits>

#include "macros.h"

namespace at {

template <class T, class = std::enable_if_t<std::is_integral_v<T>>>
C10_HOST_DEVICE T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace at
