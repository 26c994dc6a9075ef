// c10::Half and c10::BFloat16: 16 bits of storage, arithmetic in float, as torch has them.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "macros.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace kernelpro_light {

C10_HOST_DEVICE inline float float_of_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

C10_HOST_DEVICE inline uint32_t bits_of_float(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

inline float float_of_half(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 0) {  // zero and subnormal numbers: a whole number of 2^-24
    const float magnitude = float(fraction) * (1.0f / 16777216.0f);
    return sign ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return float_of_bits(sign | wide << 23 | fraction << 13);
}

inline uint16_t half_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;   // not a number
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000) {                       // below 2^-14: subnormal
    // Adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded to even.
    const float moved = float_of_bits(magnitude) + 0.5f;
    return sign | uint16_t(bits_of_float(moved) - 0x3f000000);
  }
  const uint32_t odd = magnitude >> 13 & 1;
  return sign | uint16_t((magnitude + 0xfff + odd - (112u << 23)) >> 13);
}

C10_HOST_DEVICE inline uint16_t bfloat_of_float(float value) {
  const uint32_t bits = bits_of_float(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0;  // not a number
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace kernelpro_light

namespace c10 {

struct alignas(2) Half {
  unsigned short x;
  struct from_bits_t {};
  static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return from_bits_t(); }
  Half() = default;
  constexpr C10_HOST_DEVICE Half(unsigned short bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE Half(float value) {
#if defined(__CUDA_ARCH__)
    x = __half_as_short(__float2half(value));
#else
    x = kernelpro_light::half_of_float(value);
#endif
  }
  C10_HOST_DEVICE operator float() const {
#if defined(__CUDA_ARCH__)
    return __half2float(*reinterpret_cast<const __half*>(&x));
#else
    return kernelpro_light::float_of_half(x);
#endif
  }
#if defined(__CUDACC__)
  C10_HOST_DEVICE Half(const __half& value) { x = *reinterpret_cast<const unsigned short*>(&value); }
  C10_HOST_DEVICE operator __half() const { return *reinterpret_cast<const __half*>(&x); }
#endif
};

struct alignas(2) BFloat16 {
  uint16_t x;
  struct from_bits_t {};
  static constexpr C10_HOST_DEVICE from_bits_t from_bits() { return from_bits_t(); }
  BFloat16() = default;
  constexpr C10_HOST_DEVICE BFloat16(unsigned short bits, from_bits_t) : x(bits) {}
  C10_HOST_DEVICE BFloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    x = __bfloat16_as_ushort(__float2bfloat16(value));
#else
    x = kernelpro_light::bfloat_of_float(value);
#endif
  }
  C10_HOST_DEVICE operator float() const {
    return kernelpro_light::float_of_bits(uint32_t(x) << 16);
  }
#if defined(__CUDACC__)
  C10_HOST_DEVICE BFloat16(const __nv_bfloat16& value) {
    x = *reinterpret_cast<const unsigned short*>(&value);
  }
  C10_HOST_DEVICE explicit operator __nv_bfloat16() const {
    return *reinterpret_cast<const __nv_bfloat16*>(&x);
  }
#endif
};

#define KERNELPRO_LIGHT_BINARY(Type, op)                                                        \
  C10_HOST_DEVICE inline Type operator op(const Type& a, const Type& b) {                       \
    return Type(static_cast<float>(a) op static_cast<float>(b));                                \
  }                                                                                             \
  C10_HOST_DEVICE inline float operator op(Type a, float b) { return static_cast<float>(a) op b; } \
  C10_HOST_DEVICE inline float operator op(float a, Type b) { return a op static_cast<float>(b); } \
  C10_HOST_DEVICE inline double operator op(Type a, double b) {                                 \
    return static_cast<double>(static_cast<float>(a)) op b;                                     \
  }                                                                                             \
  C10_HOST_DEVICE inline double operator op(double a, Type b) {                                 \
    return a op static_cast<double>(static_cast<float>(b));                                     \
  }                                                                                             \
  C10_HOST_DEVICE inline Type operator op(Type a, int b) { return a op Type(float(b)); }        \
  C10_HOST_DEVICE inline Type operator op(int a, Type b) { return Type(float(a)) op b; }        \
  C10_HOST_DEVICE inline Type operator op(Type a, int64_t b) { return a op Type(float(b)); }    \
  C10_HOST_DEVICE inline Type operator op(int64_t a, Type b) { return Type(float(a)) op b; }    \
  C10_HOST_DEVICE inline Type& operator op##=(Type& a, const Type& b) { return a = a op b; }    \
  C10_HOST_DEVICE inline float& operator op##=(float& a, const Type& b) {                       \
    return a = a op static_cast<float>(b);                                                      \
  }
#define KERNELPRO_LIGHT_ARITHMETIC(Type)                                                        \
  KERNELPRO_LIGHT_BINARY(Type, +)                                                               \
  KERNELPRO_LIGHT_BINARY(Type, -)                                                               \
  KERNELPRO_LIGHT_BINARY(Type, *)                                                               \
  KERNELPRO_LIGHT_BINARY(Type, /)                                                               \
  C10_HOST_DEVICE inline Type operator-(const Type& a) { return Type(-static_cast<float>(a)); }
KERNELPRO_LIGHT_ARITHMETIC(Half)
KERNELPRO_LIGHT_ARITHMETIC(BFloat16)
#undef KERNELPRO_LIGHT_ARITHMETIC
#undef KERNELPRO_LIGHT_BINARY

}  // namespace c10

namespace std {

template <>
class numeric_limits<c10::Half> {
 public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false;
  static constexpr bool is_exact = false, has_infinity = true, has_quiet_NaN = true;
  static constexpr int digits = 11, max_exponent = 16, min_exponent = -13;
  static constexpr c10::Half of(unsigned short bits) { return {bits, c10::Half::from_bits()}; }
  static constexpr c10::Half min() { return of(0x0400); }
  static constexpr c10::Half max() { return of(0x7bff); }
  static constexpr c10::Half lowest() { return of(0xfbff); }
  static constexpr c10::Half epsilon() { return of(0x1400); }
  static constexpr c10::Half infinity() { return of(0x7c00); }
  static constexpr c10::Half quiet_NaN() { return of(0x7e00); }
};

template <>
class numeric_limits<c10::BFloat16> {
 public:
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false;
  static constexpr bool is_exact = false, has_infinity = true, has_quiet_NaN = true;
  static constexpr int digits = 8, max_exponent = 128, min_exponent = -125;
  static constexpr c10::BFloat16 of(unsigned short bits) {
    return {bits, c10::BFloat16::from_bits()};
  }
  static constexpr c10::BFloat16 min() { return of(0x0080); }
  static constexpr c10::BFloat16 max() { return of(0x7f7f); }
  static constexpr c10::BFloat16 lowest() { return of(0xff7f); }
  static constexpr c10::BFloat16 epsilon() { return of(0x3c00); }
  static constexpr c10::BFloat16 infinity() { return of(0x7f80); }
  static constexpr c10::BFloat16 quiet_NaN() { return of(0x7fc0); }
};

}  // namespace std
