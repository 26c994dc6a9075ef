// PYBIND11_MODULE and m.def: C++ functions as functions of a Python module.
#pragma once

#include "operators.h"

namespace kernelpro_light {

// --- values from Python: false is a mismatch; the lock is held -----------------------------------

inline bool mismatch() {
  PyErr_Clear();
  return false;
}

// All are named before any is used, as in python.h.
template <class T>
std::enable_if_t<std::is_arithmetic_v<T>, bool> from_python(PyObject* object, T& value);
template <class T>
bool from_python(PyObject* object, std::optional<T>& value);
template <class T>
bool from_python(PyObject* object, std::vector<T>& value);
template <class... T>
bool from_python(PyObject* object, std::tuple<T...>& value);
template <class A, class B>
bool from_python(PyObject* object, std::pair<A, B>& value);

inline bool from_python(PyObject* object, at::Tensor& value) {
  static PyObject* type = nullptr;
  if (type == nullptr) type = torch_attribute("Tensor");
  if (PyObject_IsInstance(object, type) != 1) return mismatch();
  Py_INCREF(object);
  value = at::Tensor::of(Owned(object));
  return true;
}
inline bool from_python(PyObject* object, bool& value) {
  const auto* number = Py_TYPE(object)->tp_as_number;
  if (object != Py_None && !(number && number->nb_bool)) return false;
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) return mismatch();
  value = truth == 1;
  return true;
}
inline bool from_python(PyObject* object, std::string& value) {
  if (PyBytes_Check(object)) {
    value.assign(PyBytes_AS_STRING(object), size_t(PyBytes_GET_SIZE(object)));
    return true;
  }
  if (!PyUnicode_Check(object)) return false;
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &length);
  if (text == nullptr) return mismatch();
  value.assign(text, size_t(length));
  return true;
}
template <class T>
std::enable_if_t<std::is_arithmetic_v<T>, bool> from_python(PyObject* object, T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    const double number = PyFloat_AsDouble(object);
    if (number == -1.0 && PyErr_Occurred()) return mismatch();
    value = T(number);
    return true;
  } else {
    if (PyFloat_Check(object)) return false;
    Owned index(PyNumber_Index(object));
    if (index.get() == nullptr) return mismatch();
    if constexpr (std::is_signed_v<T>) {
      const long long number = PyLong_AsLongLong(index.get());
      if (PyErr_Occurred() || static_cast<long long>(T(number)) != number) return mismatch();
      value = T(number);
    } else {
      const unsigned long long number = PyLong_AsUnsignedLongLong(index.get());
      if (PyErr_Occurred() || static_cast<unsigned long long>(T(number)) != number)
        return mismatch();
      value = T(number);
    }
    return true;
  }
}
inline bool from_python(PyObject* object, c10::Scalar& value) {
  if (PyBool_Check(object)) {
    value = c10::Scalar(object == Py_True);
    return true;
  }
  int64_t integer = 0;
  double real = 0;
  if (from_python(object, integer)) value = c10::Scalar(integer);
  else if (from_python(object, real)) value = c10::Scalar(real);
  else return false;
  return true;
}
inline bool from_python(PyObject* object, c10::ScalarType& value) {
  value = type_of_dtype(object);
  return value != c10::ScalarType::Undefined;
}
template <class T>
bool from_python(PyObject* object, std::optional<T>& value) {
  if (object == Py_None) {
    value.reset();
    return true;
  }
  T inner{};
  if (!from_python(object, inner)) return false;
  value = std::move(inner);
  return true;
}
template <class T>
bool from_python(PyObject* object, std::vector<T>& value) {
  if (PyUnicode_Check(object) || PyBytes_Check(object)) return false;
  if (!PySequence_Check(object)) return false;
  Owned items(PySequence_Fast(object, "a sequence"));
  if (items.get() == nullptr) return mismatch();
  value.clear();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    T item{};
    if (!from_python(PySequence_Fast_GET_ITEM(items.get(), i), item)) return false;
    value.push_back(std::move(item));
  }
  return true;
}
template <class... T>
bool from_python(PyObject* object, std::tuple<T...>& value) {
  if (!PyTuple_Check(object) && !PyList_Check(object)) return false;
  if (PySequence_Size(object) != Py_ssize_t(sizeof...(T))) return false;
  Py_ssize_t i = 0;
  return std::apply(
      [&](T&... item) {
        const auto one = [&](auto& into) {
          Owned given(PySequence_GetItem(object, i++));
          return given.get() ? from_python(given.get(), into) : mismatch();
        };
        return (one(item) && ...);
      },
      value);
}
template <class A, class B>
bool from_python(PyObject* object, std::pair<A, B>& value) {
  std::tuple<A, B> both;
  if (!from_python(object, both)) return false;
  std::tie(value.first, value.second) = std::move(both);
  return true;
}

// What an argument is kept as during a call: itself, or for a reference to an array, a vector.
template <class T>
struct Kept { using type = T; };
template <class T>
struct Kept<c10::ArrayRef<T>> { using type = std::vector<T>; };

template <class T>
std::string type_name() {
  if constexpr (std::is_same_v<T, at::Tensor>) return "torch.Tensor";
  else if constexpr (std::is_same_v<T, bool>) return "bool";
  else if constexpr (std::is_integral_v<T>) return "int";
  else if constexpr (std::is_floating_point_v<T>) return "float";
  else if constexpr (std::is_same_v<T, std::string>) return "str";
  else return "object";
}

// --- functions -----------------------------------------------------------------------------------

// pybind11::arg: a name, and perhaps a default.
struct Argument {
  std::string name;
  PyObject* value = nullptr;  // for ever, as a module is
  explicit Argument(const char* name) : name(name) {}
  template <class T>
  Argument operator=(const T& given) && {
    Argument with(std::move(*this));
    with.value = to_python(given);
    return with;
  }
  Argument operator=(std::nullopt_t) && {
    Argument with(std::move(*this));
    with.value = to_python(None());
    return with;
  }
  Argument(const Argument&) = default;
  Argument(Argument&&) = default;
};

class Function {
 public:
  virtual ~Function() { delete overload; }
  virtual size_t arity() const = 0;
  virtual std::string signature() const = 0;
  // Gives a new reference, or null without an error when the arguments do not fit.
  virtual PyObject* run(PyObject* const* given) = 0;

  // Puts arguments by position and by name in order; false when they do not fit.
  bool order(PyObject* const* given, size_t count, PyObject* names, PyObject** ordered) const {
    const size_t wanted = arity();
    if (count > wanted) return false;
    for (size_t i = 0; i < wanted; ++i) ordered[i] = i < count ? given[i] : nullptr;
    const size_t named = names ? size_t(PyTuple_GET_SIZE(names)) : 0;
    for (size_t k = 0; k < named; ++k) {
      const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, Py_ssize_t(k)));
      size_t place = 0;
      while (place < arguments.size() && arguments[place].name != (name ? name : "")) ++place;
      if (place >= arguments.size() || place >= wanted || ordered[place]) return false;
      ordered[place] = given[count + k];
    }
    for (size_t i = 0; i < wanted; ++i) {
      if (ordered[i] == nullptr && i < arguments.size()) ordered[i] = arguments[i].value;
      if (ordered[i] == nullptr) return false;
    }
    return true;
  }

  std::string name, doc;
  std::vector<Argument> arguments;
  Function* overload = nullptr;  // tried when this one's arguments do not fit
  PyMethodDef method{};
};

template <class F, class R, class... A>
class Bound : public Function {
 public:
  explicit Bound(F function) : function_(std::move(function)) {}
  size_t arity() const override { return sizeof...(A); }
  std::string signature() const override {
    std::string text;
    size_t i = 0;
    ((text += words(i ? ", " : "", i < arguments.size() ? arguments[i].name : words("arg", i), ": ",
                    type_name<std::decay_t<A>>()),
      ++i),
     ...);
    return "(" + text + ")";
  }
  PyObject* run(PyObject* const* given) override { return run(given, std::index_sequence_for<A...>()); }

 private:
  template <size_t... I>
  PyObject* run(PyObject* const* given, std::index_sequence<I...>) {
    (void)given;
    std::tuple<typename Kept<std::decay_t<A>>::type...> kept;
    if (!(from_python(given[I], std::get<I>(kept)) && ...)) return nullptr;
    if constexpr (std::is_void_v<R>) {
      {
        Released released;
        function_(pass<A>(std::get<I>(kept))...);
      }
      Py_RETURN_NONE;
    } else {
      const auto result = [&]() -> std::decay_t<R> {
        Released released;
        return function_(pass<A>(std::get<I>(kept))...);
      }();
      return to_python(result);
    }
  }
  // A value that the function takes for itself is handed over; the rest is lent.
  template <class T, class K>
  static decltype(auto) pass(K& kept) {
    if constexpr (std::is_lvalue_reference_v<T>) {
      if constexpr (std::is_same_v<std::decay_t<T>, K>) return (kept);
      else return std::decay_t<T>(kept);
    } else if constexpr (std::is_same_v<std::decay_t<T>, K>) {
      return std::move(kept);
    } else {
      return std::decay_t<T>(kept);
    }
  }
  F function_;
};

template <class R, class... A>
Function* bind(R (*function)(A...)) {
  return new Bound<R (*)(A...), R, A...>(function);
}
template <class F, class C, class R, class... A>
Function* bind_callable(F function, R (C::*)(A...) const) {
  return new Bound<F, R, A...>(std::move(function));
}
template <class F>
auto bind(F function) -> decltype(bind_callable(std::move(function), &F::operator())) {
  return bind_callable(std::move(function), &F::operator());
}

inline void raise(PyObject* type, const char* text) { PyErr_SetString(type, text); }

inline PyObject* call_from_python(PyObject* self, PyObject* const* given, Py_ssize_t count,
                                  PyObject* names) {
  auto* function = static_cast<Function*>(PyCapsule_GetPointer(self, nullptr));
  if (function == nullptr) return nullptr;
  try {
    for (Function* one = function; one; one = one->overload) {
      std::vector<PyObject*> ordered(one->arity() + 1);
      if (!one->order(given, size_t(count), names, ordered.data())) continue;
      if (PyObject* result = one->run(ordered.data())) return result;
      if (PyErr_Occurred()) return nullptr;
    }
    std::string text = function->name + "(): incompatible function arguments. The following "
                                        "argument types are supported:";
    int number = 0;
    for (Function* one = function; one; one = one->overload)
      text += words("\n    ", ++number, ". ", one->signature());
    raise(PyExc_TypeError, text.c_str());
  } catch (const PythonError& error) {
    error.restore();
  } catch (const c10::IndexError& error) {
    raise(PyExc_IndexError, error.what());
  } catch (const c10::ValueError& error) {
    raise(PyExc_ValueError, error.what());
  } catch (const c10::TypeError& error) {
    raise(PyExc_TypeError, error.what());
  } catch (const c10::NotImplementedError& error) {
    raise(PyExc_NotImplementedError, error.what());
  } catch (const std::bad_alloc& error) {
    raise(PyExc_MemoryError, error.what());
  } catch (const std::invalid_argument& error) {
    raise(PyExc_ValueError, error.what());
  } catch (const std::domain_error& error) {
    raise(PyExc_ValueError, error.what());
  } catch (const std::length_error& error) {
    raise(PyExc_ValueError, error.what());
  } catch (const std::out_of_range& error) {
    raise(PyExc_IndexError, error.what());
  } catch (const std::overflow_error& error) {
    raise(PyExc_OverflowError, error.what());
  } catch (const std::exception& error) {
    raise(PyExc_RuntimeError, error.what());
  } catch (...) {
    raise(PyExc_RuntimeError, "Caught an unknown exception!");
  }
  return nullptr;
}

}  // namespace kernelpro_light

namespace pybind11 {

using arg = kernelpro_light::Argument;
inline kernelpro_light::None none() { return {}; }

// The lock is not held while a function runs, so these change nothing.
struct gil_scoped_release {};
template <class T>
struct call_guard {};

class module_ {
 public:
  explicit module_(PyObject* module) : object_(module) {}
  PyObject* ptr() const { return object_; }
  template <class F, class... E>
  module_& def(const char* name, F&& function, const E&... extras) {
    kernelpro_light::Function* made = kernelpro_light::bind(std::decay_t<F>(std::forward<F>(function)));
    made->name = name;
    (take(*made, extras), ...);
    add(made);
    return *this;
  }
  // m.doc() = "..." sets the module's docstring.
  struct Doc {
    PyObject* module;
    void operator=(const char* text) {
      kernelpro_light::Owned words(kernelpro_light::to_python(text));
      PyObject_SetAttrString(module, "__doc__", words.get());
    }
  };
  Doc doc() { return Doc{object_}; }

 private:
  static void take(kernelpro_light::Function& function, const char* doc) { function.doc = doc; }
  static void take(kernelpro_light::Function& function, const arg& argument) {
    function.arguments.push_back(argument);
  }
  template <class T>
  static void take(kernelpro_light::Function&, const call_guard<T>&) {}

  void add(kernelpro_light::Function* made) {
    using kernelpro_light::Function;
    using kernelpro_light::Owned;
    Owned known(PyObject_GetAttrString(object_, made->name.c_str()));
    if (known.get() == nullptr) PyErr_Clear();
    if (known.get() && PyCFunction_Check(known.get())) {
      PyObject* self = PyCFunction_GET_SELF(known.get());
      if (self && PyCapsule_CheckExact(self)) {
        auto* last = static_cast<Function*>(PyCapsule_GetPointer(self, nullptr));
        while (last->overload) last = last->overload;
        last->overload = made;
        return;
      }
    }
    Function* function = made;  // lives as long as its capsule
    const auto call = &kernelpro_light::call_from_python;
    function->method = {function->name.c_str(), reinterpret_cast<PyCFunction>(
                                                    reinterpret_cast<void (*)()>(call)),
                        METH_FASTCALL | METH_KEYWORDS, function->doc.c_str()};
    Owned capsule(kernelpro_light::checked(
        PyCapsule_New(function, nullptr, [](PyObject* held) {
          delete static_cast<Function*>(PyCapsule_GetPointer(held, nullptr));
        })));
    Owned object(kernelpro_light::checked(
        PyCFunction_NewEx(&function->method, capsule.get(), nullptr)));
    if (PyObject_SetAttrString(object_, function->name.c_str(), object.get()) != 0)
      throw kernelpro_light::PythonError();
  }
  PyObject* object_;
};
using module = module_;

}  // namespace pybind11
namespace py = pybind11;

namespace torch {
template <class F>
F wrap_pybind_function(F function) { return function; }
}  // namespace torch

#define KERNELPRO_LIGHT_JOIN(a, b) a##b
#define KERNELPRO_LIGHT_TEXT(name) #name
#define KERNELPRO_LIGHT_MODULE(name, variable)                                             \
  static void kernelpro_light_fill(::pybind11::module_&);                                  \
  extern "C" __attribute__((visibility("default"))) PyObject* KERNELPRO_LIGHT_JOIN(PyInit_, name)() { \
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, KERNELPRO_LIGHT_TEXT(name),    \
                                     nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr}; \
    ::kernelpro_light::Owned made(PyModule_Create(&definition));                           \
    if (made.get() == nullptr) return nullptr;                                             \
    try {                                                                                  \
      ::pybind11::module_ wrapped(made.get());                                             \
      kernelpro_light_fill(wrapped);                                                       \
    } catch (const ::kernelpro_light::PythonError& error) {                                \
      error.restore();                                                                     \
      return nullptr;                                                                      \
    } catch (const std::exception& error) {                                                \
      PyErr_SetString(PyExc_ImportError, error.what());                                    \
      return nullptr;                                                                      \
    }                                                                                      \
    return made.give();                                                                    \
  }                                                                                        \
  void kernelpro_light_fill(::pybind11::module_& variable)
#define PYBIND11_MODULE(name, variable, ...) KERNELPRO_LIGHT_MODULE(name, variable)
