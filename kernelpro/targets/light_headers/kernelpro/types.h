// Element types, devices, array references and options of tensors: plain values, no Python.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "halves.h"

namespace c10 {

template <class T>
using optional = std::optional<T>;
using std::make_optional;
using std::nullopt;
using std::nullopt_t;

// Numbers are torch's own, which never change.
enum class ScalarType : int8_t {
  Byte = 0,
  Char = 1,
  Short = 2,
  Int = 3,
  Long = 4,
  Half = 5,
  Float = 6,
  Double = 7,
  ComplexHalf = 8,
  ComplexFloat = 9,
  ComplexDouble = 10,
  Bool = 11,
  BFloat16 = 15,
  Float8_e5m2 = 23,
  Float8_e4m3fn = 24,
  UInt16 = 27,
  UInt32 = 28,
  UInt64 = 29,
  Undefined = 127,
};

constexpr auto kByte = ScalarType::Byte, kUInt8 = ScalarType::Byte;
constexpr auto kChar = ScalarType::Char, kInt8 = ScalarType::Char;
constexpr auto kShort = ScalarType::Short, kInt16 = ScalarType::Short;
constexpr auto kInt = ScalarType::Int, kInt32 = ScalarType::Int;
constexpr auto kLong = ScalarType::Long, kInt64 = ScalarType::Long;
constexpr auto kHalf = ScalarType::Half, kFloat16 = ScalarType::Half;
constexpr auto kFloat = ScalarType::Float, kFloat32 = ScalarType::Float;
constexpr auto kDouble = ScalarType::Double, kFloat64 = ScalarType::Double;
constexpr auto kComplexFloat = ScalarType::ComplexFloat;
constexpr auto kComplexDouble = ScalarType::ComplexDouble;
constexpr auto kBool = ScalarType::Bool, kBFloat16 = ScalarType::BFloat16;
constexpr auto kUInt16 = ScalarType::UInt16, kUInt32 = ScalarType::UInt32;
constexpr auto kUInt64 = ScalarType::UInt64;
constexpr auto kFloat8_e5m2 = ScalarType::Float8_e5m2;
constexpr auto kFloat8_e4m3fn = ScalarType::Float8_e4m3fn;

// Type, enumerator, size, torch's name in Python, and in C++.
#define KERNELPRO_LIGHT_TYPES(_)                                  \
  _(uint8_t, Byte, "uint8", "unsigned char")                      \
  _(int8_t, Char, "int8", "signed char")                          \
  _(int16_t, Short, "int16", "short int")                         \
  _(int, Int, "int32", "int")                                     \
  _(int64_t, Long, "int64", "long int")                           \
  _(c10::Half, Half, "float16", "c10::Half")                      \
  _(float, Float, "float32", "float")                             \
  _(double, Double, "float64", "double")                          \
  _(bool, Bool, "bool", "bool")                                   \
  _(c10::BFloat16, BFloat16, "bfloat16", "c10::BFloat16")         \
  _(uint16_t, UInt16, "uint16", "unsigned short int")             \
  _(uint32_t, UInt32, "uint32", "unsigned int")                   \
  _(uint64_t, UInt64, "uint64", "unsigned long int")

template <class T>
struct CppTypeToScalarType;
#define KERNELPRO_LIGHT_OF(T, Name, python, cpp)                  \
  template <>                                                     \
  struct CppTypeToScalarType<T> {                                 \
    static constexpr ScalarType value = ScalarType::Name;         \
    constexpr operator ScalarType() const { return value; }       \
  };
KERNELPRO_LIGHT_TYPES(KERNELPRO_LIGHT_OF)
#undef KERNELPRO_LIGHT_OF

namespace impl {
template <ScalarType N>
struct ScalarTypeToCPPType;
#define KERNELPRO_LIGHT_OF(T, Name, python, cpp) \
  template <>                                    \
  struct ScalarTypeToCPPType<ScalarType::Name> { \
    using type = T;                              \
  };
KERNELPRO_LIGHT_TYPES(KERNELPRO_LIGHT_OF)
#undef KERNELPRO_LIGHT_OF
template <ScalarType N>
using ScalarTypeToCPPTypeT = typename ScalarTypeToCPPType<N>::type;
}  // namespace impl

inline const char* toString(ScalarType type) {
  switch (type) {
#define KERNELPRO_LIGHT_OF(T, Name, python, cpp) \
  case ScalarType::Name: return #Name;
    KERNELPRO_LIGHT_TYPES(KERNELPRO_LIGHT_OF)
#undef KERNELPRO_LIGHT_OF
    case ScalarType::ComplexHalf: return "ComplexHalf";
    case ScalarType::ComplexFloat: return "ComplexFloat";
    case ScalarType::ComplexDouble: return "ComplexDouble";
    case ScalarType::Float8_e5m2: return "Float8_e5m2";
    case ScalarType::Float8_e4m3fn: return "Float8_e4m3fn";
    default: return "Undefined";
  }
}

inline size_t elementSize(ScalarType type) {
  switch (type) {
#define KERNELPRO_LIGHT_OF(T, Name, python, cpp) \
  case ScalarType::Name: return sizeof(T);
    KERNELPRO_LIGHT_TYPES(KERNELPRO_LIGHT_OF)
#undef KERNELPRO_LIGHT_OF
    case ScalarType::ComplexHalf: return 4;
    case ScalarType::ComplexFloat: return 8;
    case ScalarType::ComplexDouble: return 16;
    default: return 1;
  }
}

inline bool isFloatingType(ScalarType type) {
  return type == kDouble || type == kFloat || type == kHalf || type == kBFloat16 ||
         type == kFloat8_e5m2 || type == kFloat8_e4m3fn;
}
inline bool isReducedFloatingType(ScalarType type) { return type == kHalf || type == kBFloat16; }
inline bool isIntegralType(ScalarType type, bool with_bool) {
  return type == kByte || type == kChar || type == kShort || type == kInt || type == kLong ||
         type == kUInt16 || type == kUInt32 || type == kUInt64 || (with_bool && type == kBool);
}

// What Tensor::dtype() gives: an element type with a C++ name.
struct TypeMeta {
  ScalarType type;
  constexpr TypeMeta(ScalarType type) : type(type) {}
  ScalarType toScalarType() const { return type; }
  size_t itemsize() const { return elementSize(type); }
  std::string name() const {
    switch (type) {
#define KERNELPRO_LIGHT_OF(T, Name, python, cpp) \
  case ScalarType::Name: return cpp;
      KERNELPRO_LIGHT_TYPES(KERNELPRO_LIGHT_OF)
#undef KERNELPRO_LIGHT_OF
      default: return toString(type);
    }
  }
};
inline bool operator==(TypeMeta a, TypeMeta b) { return a.type == b.type; }
inline bool operator!=(TypeMeta a, TypeMeta b) { return a.type != b.type; }
inline bool operator==(TypeMeta a, ScalarType b) { return a.type == b; }
inline bool operator!=(TypeMeta a, ScalarType b) { return a.type != b; }
inline bool operator==(ScalarType a, TypeMeta b) { return a == b.type; }
inline bool operator!=(ScalarType a, TypeMeta b) { return a != b.type; }
inline ScalarType typeMetaToScalarType(TypeMeta meta) { return meta.type; }

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr auto kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;

struct Device {
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  std::string str() const {
    return std::string(is_cuda() ? "cuda" : "cpu") + (index_ < 0 ? "" : ":" + std::to_string(index_));
  }
  bool operator==(const Device& other) const {
    return type_ == other.type_ && index_ == other.index_;
  }
  bool operator!=(const Device& other) const { return !(*this == other); }

 private:
  DeviceType type_;
  DeviceIndex index_;
};
inline bool operator==(DeviceType a, const Device& b) { return b == Device(a); }

enum class Layout : int8_t { Strided };
constexpr auto kStrided = Layout::Strided;
enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

template <class T>
class ArrayRef {
 public:
  using value_type = T;
  constexpr ArrayRef() = default;
  constexpr ArrayRef(const T& one) : data_(&one), size_(1) {}
  constexpr ArrayRef(const T* data, size_t size) : data_(data), size_(size) {}
  constexpr ArrayRef(const T* begin, const T* end) : data_(begin), size_(end - begin) {}
  template <class A>
  ArrayRef(const std::vector<T, A>& items) : data_(items.data()), size_(items.size()) {}
  template <size_t N>
  constexpr ArrayRef(const std::array<T, N>& items) : data_(items.data()), size_(N) {}
  template <size_t N>
  constexpr ArrayRef(const T (&items)[N]) : data_(items), size_(N) {}
  // Of a list that outlives the call, as torch's own does.
  constexpr ArrayRef(const std::initializer_list<T>& items) : ArrayRef(items.begin(), items.size()) {}
  constexpr const T* begin() const { return data_; }
  constexpr const T* end() const { return data_ + size_; }
  constexpr const T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const T& operator[](size_t i) const { return data_[i]; }
  const T& at(size_t i) const { return data_[i]; }
  const T& front() const { return data_[0]; }
  const T& back() const { return data_[size_ - 1]; }
  std::vector<T> vec() const { return std::vector<T>(begin(), end()); }
  ArrayRef slice(size_t from, size_t count) const { return ArrayRef(data_ + from, count); }
  ArrayRef slice(size_t from) const { return slice(from, size_ - from); }
  bool equals(ArrayRef other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i)
      if (!(data_[i] == other.data_[i])) return false;
    return true;
  }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};
template <class T>
bool operator==(ArrayRef<T> a, ArrayRef<T> b) { return a.equals(b); }
template <class T>
bool operator!=(ArrayRef<T> a, ArrayRef<T> b) { return !a.equals(b); }
template <class T>
bool operator==(const std::vector<T>& a, ArrayRef<T> b) { return ArrayRef<T>(a).equals(b); }
template <class T>
bool operator==(ArrayRef<T> a, const std::vector<T>& b) { return a.equals(ArrayRef<T>(b)); }
using IntArrayRef = ArrayRef<int64_t>;

struct TensorOptions {
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  std::optional<bool> requires_grad_;
  std::optional<MemoryFormat> memory_format_;

  TensorOptions() = default;
  TensorOptions(ScalarType type) : dtype_(type) {}
  TensorOptions(TypeMeta type) : dtype_(type.type) {}
  TensorOptions(Device device) : device_(device) {}
  TensorOptions(DeviceType type) : device_(Device(type)) {}
  TensorOptions(MemoryFormat format) : memory_format_(format) {}
  TensorOptions(Layout) {}
  TensorOptions dtype(ScalarType type) const { return dtype(std::optional<ScalarType>(type)); }
  TensorOptions dtype(TypeMeta type) const { return dtype(type.type); }
  TensorOptions dtype(std::optional<ScalarType> type) const {
    auto other = *this;
    other.dtype_ = type;
    return other;
  }
  template <class T>
  TensorOptions dtype() const { return dtype(CppTypeToScalarType<T>::value); }
  TensorOptions device(std::optional<Device> device) const {
    auto other = *this;
    other.device_ = device;
    return other;
  }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const {
    return device(Device(type, index));
  }
  TensorOptions requires_grad(std::optional<bool> wanted = true) const {
    auto other = *this;
    other.requires_grad_ = wanted;
    return other;
  }
  TensorOptions memory_format(std::optional<MemoryFormat> format) const {
    auto other = *this;
    other.memory_format_ = format;
    return other;
  }
  TensorOptions layout(std::optional<Layout>) const { return *this; }
  TensorOptions pinned_memory(std::optional<bool>) const = delete;
  TypeMeta dtype() const { return dtype_.value_or(kFloat); }
  Device device() const { return device_.value_or(Device(kCPU)); }
  bool requires_grad() const { return requires_grad_.value_or(false); }
};
inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
template <class T>
TensorOptions dtype() { return TensorOptions(CppTypeToScalarType<T>::value); }
inline TensorOptions device(Device device) { return TensorOptions(device); }
inline TensorOptions requires_grad(bool wanted = true) {
  return TensorOptions().requires_grad(wanted);
}

struct Scalar {
  enum Kind : char { Integer, Real, Boolean } kind;
  int64_t integer = 0;
  double real = 0;
  Scalar() : kind(Integer) {}
  Scalar(bool value) : kind(Boolean), integer(value) {}
  Scalar(float value) : kind(Real), real(value) {}
  Scalar(double value) : kind(Real), real(value) {}
  Scalar(Half value) : kind(Real), real(float(value)) {}
  Scalar(BFloat16 value) : kind(Real), real(float(value)) {}
  template <class T, class = std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>>
  Scalar(T value) : kind(Integer), integer(int64_t(value)) {}
  template <class T>
  T to() const { return kind == Real ? T(float_or<T>()) : T(integer); }
  float toFloat() const { return float(toDouble()); }
  double toDouble() const { return kind == Real ? real : double(integer); }
  int toInt() const { return int(toLong()); }
  int64_t toLong() const { return kind == Real ? int64_t(real) : integer; }
  bool toBool() const { return kind == Real ? real != 0 : integer != 0; }
  bool isFloatingPoint() const { return kind == Real; }
  bool isBoolean() const { return kind == Boolean; }
  bool isIntegral(bool with_bool) const {
    return kind == Integer || (with_bool && kind == Boolean);
  }

 private:
  template <class T>
  auto float_or() const {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return float(real);
    else return real;
  }
};

}  // namespace c10
