// c10::Error, the TORCH_CHECK family, and the text of their messages.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "types.h"

namespace kernelpro_light {

inline void say(std::string& text, const char* word) { text += word; }
inline void say(std::string& text, const std::string& word) { text += word; }
inline void say(std::string& text, char letter) { text += letter; }
inline void say(std::string& text, bool value) { text += value ? "1" : "0"; }
inline void say(std::string& text, c10::ScalarType type) { text += c10::toString(type); }
inline void say(std::string& text, c10::TypeMeta type) { text += type.name(); }
inline void say(std::string& text, const c10::Device& device) { text += device.str(); }
inline void say(std::string& text, c10::DeviceType type) {
  text += type == c10::kCUDA ? "cuda" : "cpu";
}
template <class T>
std::enable_if_t<std::is_arithmetic_v<T>> say(std::string& text, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%g", double(value));
    text += digits;
  } else {
    text += std::to_string(value);
  }
}
template <class T>
void say(std::string& text, c10::ArrayRef<T> items) {
  text += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) text += ", ";
    say(text, items[i]);
  }
  text += ']';
}
template <class T>
void say(std::string& text, const std::vector<T>& items) { say(text, c10::ArrayRef<T>(items)); }

template <class... A>
std::string words(const A&... parts) {
  std::string text;
  (say(text, parts), ...);
  return text;
}

}  // namespace kernelpro_light

namespace c10 {

class Error : public std::exception {
 public:
  explicit Error(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const char* what_without_backtrace() const noexcept { return what(); }
  const std::string& msg() const { return text_; }

 private:
  std::string text_;
};
class IndexError : public Error { using Error::Error; };
class ValueError : public Error { using Error::Error; };
class TypeError : public Error { using Error::Error; };
class NotImplementedError : public Error { using Error::Error; };

template <class... A>
std::string str(const A&... parts) { return kernelpro_light::words(parts...); }

// Streams take these too, whichever stream header the source includes.
#define KERNELPRO_LIGHT_STREAMED(...)                                          \
  template <class S>                                                           \
  auto operator<<(S& stream, const __VA_ARGS__& value)->decltype(stream << "") { \
    return stream << kernelpro_light::words(value).c_str();                    \
  }
KERNELPRO_LIGHT_STREAMED(ScalarType)
KERNELPRO_LIGHT_STREAMED(TypeMeta)
KERNELPRO_LIGHT_STREAMED(Device)
KERNELPRO_LIGHT_STREAMED(DeviceType)
KERNELPRO_LIGHT_STREAMED(IntArrayRef)
#undef KERNELPRO_LIGHT_STREAMED

}  // namespace c10

namespace kernelpro_light {

template <class E>
[[noreturn]] inline void fail(const char* condition) {
  throw E(words("Expected ", condition,
                " to be true, but got false.  (Could this error message be improved?  If so, "
                "please report an enhancement request to PyTorch.)"));
}
template <class E, class... A>
[[noreturn]] void fail(const char*, const A&... parts) {
  throw E(words(parts...));
}

}  // namespace kernelpro_light

#define KERNELPRO_LIGHT_CHECK(E, condition, ...)                       \
  do {                                                                 \
    if (C10_UNLIKELY(!(condition)))                                    \
      ::kernelpro_light::fail<E>(#condition, ##__VA_ARGS__);           \
  } while (false)
#define TORCH_CHECK(condition, ...) \
  KERNELPRO_LIGHT_CHECK(::c10::Error, condition, ##__VA_ARGS__)
#define TORCH_CHECK_INDEX(condition, ...) \
  KERNELPRO_LIGHT_CHECK(::c10::IndexError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) \
  KERNELPRO_LIGHT_CHECK(::c10::ValueError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) \
  KERNELPRO_LIGHT_CHECK(::c10::TypeError, condition, ##__VA_ARGS__)
#define TORCH_CHECK_NOT_IMPLEMENTED(condition, ...) \
  KERNELPRO_LIGHT_CHECK(::c10::NotImplementedError, condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define TORCH_INTERNAL_ASSERT_DEBUG_ONLY(condition, ...) \
  do {                                                   \
  } while (false)
#define AT_ASSERT(condition) TORCH_CHECK(condition)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, ##__VA_ARGS__)
#define AT_ERROR(...) ::kernelpro_light::fail<::c10::Error>("", ##__VA_ARGS__)
