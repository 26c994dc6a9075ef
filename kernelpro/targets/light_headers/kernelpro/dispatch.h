// AT_DISPATCH_*: a lambda for each element type, with scalar_t as its name.
#pragma once

#include "errors.h"

namespace kernelpro_light {
// Torch's macros take nothing else, so a winner that gave them x.dtype() would not build.
constexpr c10::ScalarType dispatched(c10::ScalarType type) { return type; }
template <class T>
c10::ScalarType dispatched(const T&) = delete;
}  // namespace kernelpro_light

#define AT_PRIVATE_CASE_TYPE_USING_HINT(enumerator, hint, ...)                \
  case enumerator: {                                                          \
    using hint [[maybe_unused]] = ::c10::impl::ScalarTypeToCPPTypeT<enumerator>; \
    return __VA_ARGS__();                                                     \
  }
#define AT_DISPATCH_CASE(enumerator, ...) \
  AT_PRIVATE_CASE_TYPE_USING_HINT(enumerator, scalar_t, __VA_ARGS__)
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                              \
  [&] {                                                                                  \
    const auto& the_type = TYPE;                                                         \
    constexpr const char* at_dispatch_name = NAME;                                       \
    const auto kernelpro_light_type = ::kernelpro_light::dispatched(the_type);           \
    switch (kernelpro_light_type) {                                                      \
      __VA_ARGS__                                                                        \
      default:                                                                           \
        ::kernelpro_light::fail<::c10::NotImplementedError>("", '"', at_dispatch_name,   \
                                                            "\" not implemented for '",  \
                                                            kernelpro_light_type, "'");  \
    }                                                                                    \
  }()

#define AT_DISPATCH_CASE_FLOATING_TYPES(...)                  \
  AT_DISPATCH_CASE(::c10::ScalarType::Double, __VA_ARGS__)    \
  AT_DISPATCH_CASE(::c10::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(...)          \
  AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::c10::ScalarType::BFloat16, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)                  \
  AT_DISPATCH_CASE(::c10::ScalarType::Byte, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::c10::ScalarType::Char, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::c10::ScalarType::Int, __VA_ARGS__)       \
  AT_DISPATCH_CASE(::c10::ScalarType::Long, __VA_ARGS__)      \
  AT_DISPATCH_CASE(::c10::ScalarType::Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF(...)         \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)                \
  AT_DISPATCH_CASE(::c10::ScalarType::Half, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND(A, ...)           \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)                \
  AT_DISPATCH_CASE(A, __VA_ARGS__)
#define AT_DISPATCH_CASE_FLOATING_TYPES_AND2(A, B, ...)       \
  AT_DISPATCH_CASE_FLOATING_TYPES_AND(A, __VA_ARGS__)         \
  AT_DISPATCH_CASE(B, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...)                       \
  AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__)                \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES_AND(A, ...)                \
  AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__)                     \
  AT_DISPATCH_CASE(A, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES_AND2(A, B, ...)            \
  AT_DISPATCH_CASE_ALL_TYPES_AND(A, __VA_ARGS__)              \
  AT_DISPATCH_CASE(B, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES_AND3(A, B, C, ...)         \
  AT_DISPATCH_CASE_ALL_TYPES_AND2(A, B, __VA_ARGS__)          \
  AT_DISPATCH_CASE(C, __VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_REDUCED_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES_AND_HALF(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES_AND(A, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES_AND2(A, B, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(A, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES_AND(A, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(A, B, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES_AND2(A, B, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND3(A, B, C, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES_AND3(A, B, C, __VA_ARGS__))
#define AT_DISPATCH_INDEX_TYPES(TYPE, NAME, ...)                                              \
  AT_DISPATCH_SWITCH(                                                                         \
      TYPE, NAME,                                                                             \
      AT_PRIVATE_CASE_TYPE_USING_HINT(::c10::ScalarType::Int, index_t, __VA_ARGS__)           \
          AT_PRIVATE_CASE_TYPE_USING_HINT(::c10::ScalarType::Long, index_t, __VA_ARGS__))

namespace at {

template <class T>
struct OpMathType { using type = T; };
template <>
struct OpMathType<Half> { using type = float; };
template <>
struct OpMathType<BFloat16> { using type = float; };
template <class T>
using opmath_type = typename OpMathType<T>::type;

template <class T, bool is_cuda>
struct AccumulateType { using type = typename OpMathType<T>::type; };
template <>
struct AccumulateType<float, false> { using type = double; };
template <>
struct AccumulateType<int, true> { using type = int64_t; };
template <>
struct AccumulateType<int, false> { using type = int64_t; };
template <class T, bool is_cuda>
using acc_type = typename AccumulateType<T, is_cuda>::type;

}  // namespace at
