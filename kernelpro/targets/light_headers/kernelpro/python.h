// Python objects from C++: the interpreter's lock, errors, names, and values both ways.
//
// The lock is not held while a candidate's function runs, as its threads may use tensors too.
// Everything here that touches an object takes it first.
#pragma once

#include <Python.h>

#include <atomic>
#include <tuple>

#include "errors.h"

namespace at { class Tensor; }

namespace kernelpro_light {

// Holds the interpreter's lock, in any thread.
class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Lets go of the lock, in a thread that holds it.
class Released {
 public:
  Released() : state_(PyEval_SaveThread()) {}
  ~Released() { PyEval_RestoreThread(state_); }
  Released(const Released&) = delete;
  Released& operator=(const Released&) = delete;

 private:
  PyThreadState* state_;
};

// An owned reference; made, used and dropped under the lock.
class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* give() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_ = nullptr;
};

// A Python exception on its way through C++; back in Python it is the same exception.
class PythonError : public std::exception {
 public:
  // Takes the current error; the lock must be held.
  PythonError() : held_(new Held) {
    PyErr_Fetch(&held_->type, &held_->value, &held_->trace);
    PyErr_NormalizeException(&held_->type, &held_->value, &held_->trace);
    Owned text(held_->value ? PyObject_Str(held_->value) : nullptr);
    const char* letters = text.get() ? PyUnicode_AsUTF8(text.get()) : nullptr;
    held_->text = letters ? letters : "a Python error";
    PyErr_Clear();
  }
  PythonError(const PythonError& other) noexcept : std::exception(), held_(other.held_) {
    ++held_->count;
  }
  PythonError& operator=(const PythonError&) = delete;
  ~PythonError() override {
    if (--held_->count == 0) delete held_;
  }
  const char* what() const noexcept override { return held_->text.c_str(); }
  void restore() const {
    Py_XINCREF(held_->type);
    Py_XINCREF(held_->value);
    Py_XINCREF(held_->trace);
    PyErr_Restore(held_->type, held_->value, held_->trace);
  }

 private:
  struct Held {
    std::atomic<int> count{1};
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    std::string text;
    ~Held() {
      Gil gil;
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(trace);
    }
  };
  Held* held_;
};

inline PyObject* checked(PyObject* object) {
  if (object == nullptr) throw PythonError();
  return object;
}

// Attribute of the module torch that lives as long as the process; the lock must be held.
inline PyObject* torch_attribute(const char* name) {
  static PyObject* torch = nullptr;
  if (torch == nullptr) torch = checked(PyImport_ImportModule("torch"));
  PyObject* owner = torch;
  Py_INCREF(owner);
  for (std::string rest = name;;) {
    const size_t dot = rest.find('.');
    Owned holder(owner);
    owner = checked(PyObject_GetAttrString(holder.get(), rest.substr(0, dot).c_str()));
    if (dot == std::string::npos) return owner;
    rest = rest.substr(dot + 1);
  }
}

// A function of torch, and an interned name: one object for each place of use. A plain check under
// the lock, since waiting for a static's guard with the lock held could wait for ever.
#define KERNELPRO_LIGHT_TORCH(name)                                                  \
  ([]() -> PyObject* {                                                               \
    static PyObject* found = nullptr;                                                \
    if (found == nullptr) found = ::kernelpro_light::torch_attribute(name);          \
    return found;                                                                    \
  }())
#define KERNELPRO_LIGHT_NAME(name)                                                       \
  ([]() -> PyObject* {                                                                   \
    static PyObject* found = nullptr;                                                    \
    if (found == nullptr)                                                                \
      found = ::kernelpro_light::checked(PyUnicode_InternFromString(name));              \
    return found;                                                                        \
  }())

// torch's element types as objects, by number; null where this torch has none of that name.
inline PyObject* const* dtypes() {
  static PyObject* found[128] = {};
  static bool ready = false;
  if (!ready) {
    const std::pair<c10::ScalarType, const char*> names[] = {
#define KERNELPRO_LIGHT_OF(T, Name, python, cpp) {c10::ScalarType::Name, python},
        KERNELPRO_LIGHT_TYPES(KERNELPRO_LIGHT_OF)
#undef KERNELPRO_LIGHT_OF
            {c10::ScalarType::ComplexHalf, "complex32"},
        {c10::ScalarType::ComplexFloat, "complex64"},
        {c10::ScalarType::ComplexDouble, "complex128"},
        {c10::ScalarType::Float8_e5m2, "float8_e5m2"},
        {c10::ScalarType::Float8_e4m3fn, "float8_e4m3fn"},
    };
    for (const auto& [type, name] : names) {
      try {
        found[int(type)] = torch_attribute(name);
      } catch (const PythonError&) {
      }
    }
    ready = true;
  }
  return found;
}

inline c10::ScalarType type_of_dtype(PyObject* dtype) {
  PyObject* const* known = dtypes();
  if (known[int(c10::kFloat)] == dtype) return c10::kFloat;
  for (int i = 0; i < 127; ++i)
    if (known[i] == dtype) return c10::ScalarType(i);
  return c10::ScalarType::Undefined;
}

inline PyObject* dtype_of_type(c10::ScalarType type) {
  PyObject* dtype = dtypes()[int(type)];
  if (dtype == nullptr) throw c10::Error(words("torch has no element type ", type));
  return dtype;
}

inline PyObject* device_object(const c10::Device& device) {  // a new reference
  static PyObject* known[2][129] = {};
  PyObject*& object = known[device.is_cuda()][device.has_index() ? device.index() + 1 : 0];
  if (object == nullptr)
    object = checked(
        PyObject_CallFunction(KERNELPRO_LIGHT_TORCH("device"), "s", device.str().c_str()));
  Py_INCREF(object);
  return object;
}

// --- values to Python: each gives a new reference ------------------------------------------------

struct None {};
// All are named before any is used: the types are of other namespaces, where nobody would look.
inline PyObject* to_python(const at::Tensor& tensor);
inline PyObject* to_python(c10::ArrayRef<at::Tensor> tensors);
template <class T>
PyObject* to_python(const std::optional<T>& value);
template <class T>
PyObject* to_python(const std::vector<T>& items);
template <class... T>
PyObject* to_python(const std::tuple<T...>& items);
template <class A, class B>
PyObject* to_python(const std::pair<A, B>& items);
inline PyObject* to_python(None) { Py_RETURN_NONE; }
inline PyObject* to_python(bool value) { return PyBool_FromLong(value); }
inline PyObject* to_python(const char* text) { return checked(PyUnicode_FromString(text)); }
inline PyObject* to_python(const std::string& text) {
  return checked(PyUnicode_FromStringAndSize(text.data(), Py_ssize_t(text.size())));
}
inline PyObject* to_python(c10::ScalarType type) {
  PyObject* dtype = dtype_of_type(type);
  Py_INCREF(dtype);
  return dtype;
}
inline PyObject* to_python(c10::TypeMeta type) { return to_python(type.type); }
inline PyObject* to_python(const c10::Device& device) { return device_object(device); }
inline PyObject* to_python(c10::DeviceType type) { return device_object(c10::Device(type)); }
inline PyObject* to_python(const c10::Scalar& value) {
  switch (value.kind) {
    case c10::Scalar::Boolean: return PyBool_FromLong(value.integer != 0);
    case c10::Scalar::Integer: return checked(PyLong_FromLongLong(value.integer));
    default: return checked(PyFloat_FromDouble(value.real));
  }
}
inline PyObject* to_python(c10::MemoryFormat format) {
  PyObject* object = format == c10::MemoryFormat::ChannelsLast
                         ? KERNELPRO_LIGHT_TORCH("channels_last")
                     : format == c10::MemoryFormat::ChannelsLast3d
                         ? KERNELPRO_LIGHT_TORCH("channels_last_3d")
                     : format == c10::MemoryFormat::Preserve
                         ? KERNELPRO_LIGHT_TORCH("preserve_format")
                         : KERNELPRO_LIGHT_TORCH("contiguous_format");
  Py_INCREF(object);
  return object;
}
template <class T>
std::enable_if_t<std::is_arithmetic_v<T>, PyObject*> to_python(T value) {
  if constexpr (std::is_floating_point_v<T>) return checked(PyFloat_FromDouble(double(value)));
  else if constexpr (std::is_signed_v<T>) return checked(PyLong_FromLongLong(value));
  else return checked(PyLong_FromUnsignedLongLong(value));
}
inline PyObject* to_python(c10::IntArrayRef items) {
  Owned tuple(checked(PyTuple_New(Py_ssize_t(items.size()))));
  for (size_t i = 0; i < items.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), checked(PyLong_FromLongLong(items[i])));
  return tuple.give();
}
template <class T>
PyObject* to_python(const std::optional<T>& value) {
  return value.has_value() ? to_python(*value) : to_python(None());
}
template <class T>
PyObject* to_python(const std::vector<T>& items) {
  Owned list(checked(PyList_New(Py_ssize_t(items.size()))));
  for (size_t i = 0; i < items.size(); ++i)
    PyList_SET_ITEM(list.get(), Py_ssize_t(i), to_python(T(items[i])));
  return list.give();
}
template <class A, class B>
PyObject* to_python(const std::pair<A, B>& items) { return to_python(std::tuple<A, B>(items)); }

}  // namespace kernelpro_light
