// Functions on tensors: factories, arithmetic, and what host code calls around its kernels.
#pragma once

#include "tensor.h"

namespace kernelpro_light {

// A factory's call: torch.empty(shape, dtype=..., device=...), without a dictionary.
inline at::Tensor create(PyObject* function, PyObject* first, PyObject* second,
                         const c10::TensorOptions& options) {
  Owned a(first), b(second);
  if (options.memory_format_) {
    Owned positional(checked(PyTuple_Pack(b.get() ? 2 : 1, a.get(), b.get())));
    return at::Tensor::of(call_named(function, positional.give(), keywords(options)));
  }
  PyObject* given[6] = {nullptr, a.get(), b.get()};
  const size_t count = b.get() ? 2 : 1;
  size_t named = 0;
  static PyObject* names[4] = {};
  const int which = (options.dtype_ ? 1 : 0) + (options.device_ ? 2 : 0);
  Owned device;
  if (options.dtype_) given[1 + count + named++] = dtype_of_type(*options.dtype_);
  if (options.device_) {
    device = Owned(device_object(*options.device_));
    given[1 + count + named++] = device.get();
  }
  if (which && !names[which]) {
    Owned tuple(checked(PyTuple_New(Py_ssize_t(named))));
    Py_ssize_t i = 0;
    if (options.dtype_)
      PyTuple_SET_ITEM(tuple.get(), i++, checked(PyUnicode_InternFromString("dtype")));
    if (options.device_)
      PyTuple_SET_ITEM(tuple.get(), i++, checked(PyUnicode_InternFromString("device")));
    names[which] = tuple.give();
  }
  Owned made(checked(PyObject_Vectorcall(function, given + 1,
                                         count | PY_VECTORCALL_ARGUMENTS_OFFSET, names[which])));
  if (options.requires_grad_.value_or(false))
    if (PyObject_SetAttr(made.get(), KERNELPRO_LIGHT_NAME("requires_grad"), Py_True) != 0)
      throw PythonError();
  return at::Tensor::of(std::move(made));
}

inline std::vector<at::Tensor> tensors(const Owned& sequence) {
  std::vector<at::Tensor> found;
  const Py_ssize_t count = PySequence_Size(sequence.get());
  for (Py_ssize_t i = 0; i < count; ++i)
    found.push_back(at::Tensor::of(Owned(checked(PySequence_GetItem(sequence.get(), i)))));
  return found;
}

template <class... A>
at::Tensor compute(PyObject* function, const A&... arguments) {
  return at::Tensor::of(call(function, arguments...));
}

}  // namespace kernelpro_light

namespace at {

// --- factories ---------------------------------------------------------------------------------

#define KERNELPRO_LIGHT_FACTORY(name)                                                           \
  inline Tensor name(IntArrayRef shape, TensorOptions options = {}) {                           \
    kernelpro_light::Gil gil;                                                                   \
    return kernelpro_light::create(KERNELPRO_LIGHT_TORCH(#name),                                \
                                   kernelpro_light::to_python(shape), nullptr, options);        \
  }
#define KERNELPRO_LIGHT_LIKE(name)                                                              \
  inline Tensor name(const Tensor& like, TensorOptions options = {}) {                          \
    kernelpro_light::Gil gil;                                                                   \
    return kernelpro_light::create(KERNELPRO_LIGHT_TORCH(#name),                                \
                                   kernelpro_light::to_python(like), nullptr, options);         \
  }
KERNELPRO_LIGHT_FACTORY(empty)
KERNELPRO_LIGHT_FACTORY(zeros)
KERNELPRO_LIGHT_FACTORY(ones)
KERNELPRO_LIGHT_FACTORY(rand)
KERNELPRO_LIGHT_FACTORY(randn)
KERNELPRO_LIGHT_LIKE(empty_like)
KERNELPRO_LIGHT_LIKE(zeros_like)
KERNELPRO_LIGHT_LIKE(ones_like)
KERNELPRO_LIGHT_LIKE(rand_like)
KERNELPRO_LIGHT_LIKE(randn_like)
inline Tensor full(IntArrayRef shape, const Scalar& value, TensorOptions options = {}) {
  kernelpro_light::Gil gil;
  return kernelpro_light::create(KERNELPRO_LIGHT_TORCH("full"), kernelpro_light::to_python(shape),
                                 kernelpro_light::to_python(value), options);
}
inline Tensor full_like(const Tensor& like, const Scalar& value, TensorOptions options = {}) {
  kernelpro_light::Gil gil;
  return kernelpro_light::create(KERNELPRO_LIGHT_TORCH("full_like"),
                                 kernelpro_light::to_python(like),
                                 kernelpro_light::to_python(value), options);
}
inline Tensor empty_strided(IntArrayRef shape, IntArrayRef strides, TensorOptions options = {}) {
  kernelpro_light::Gil gil;
  return kernelpro_light::create(KERNELPRO_LIGHT_TORCH("empty_strided"),
                                 kernelpro_light::to_python(shape),
                                 kernelpro_light::to_python(strides), options);
}
inline Tensor arange(const Scalar& end, TensorOptions options = {}) {
  kernelpro_light::Gil gil;
  return kernelpro_light::create(KERNELPRO_LIGHT_TORCH("arange"), kernelpro_light::to_python(end),
                                 nullptr, options);
}
inline Tensor arange(const Scalar& begin, const Scalar& end, TensorOptions options = {}) {
  kernelpro_light::Gil gil;
  return kernelpro_light::create(KERNELPRO_LIGHT_TORCH("arange"),
                                 kernelpro_light::to_python(begin),
                                 kernelpro_light::to_python(end), options);
}
// A tensor of numbers that are given: torch::tensor(1.0f), torch::tensor({1, 2}).
template <class T>
std::enable_if_t<std::is_arithmetic_v<T>, Tensor> tensor(T value, TensorOptions options = {}) {
  if (!options.dtype_) options.dtype_ = c10::CppTypeToScalarType<T>::value;
  return full({}, Scalar(value), options);
}
template <class T>
Tensor tensor(ArrayRef<T> values, TensorOptions options = {}) {
  if (!options.dtype_) options.dtype_ = c10::CppTypeToScalarType<T>::value;
  kernelpro_light::Gil gil;
  return kernelpro_light::create(KERNELPRO_LIGHT_TORCH("tensor"),
                                 kernelpro_light::to_python(values.vec()), nullptr, options);
}
template <class T>
Tensor tensor(std::initializer_list<T> values, TensorOptions options = {}) {
  return tensor(ArrayRef<T>(values), options);
}
template <class T>
Tensor tensor(const std::vector<T>& values, TensorOptions options = {}) {
  return tensor(ArrayRef<T>(values), options);
}
inline TensorOptions like(const Tensor& tensor, TensorOptions options) {
  if (!options.dtype_) options.dtype_ = tensor.scalar_type();
  if (!options.device_) options.device_ = tensor.device();
  return options;
}
inline Tensor Tensor::new_empty(IntArrayRef shape, TensorOptions options) const {
  return at::empty(shape, like(*this, options));
}
inline Tensor Tensor::new_zeros(IntArrayRef shape, TensorOptions options) const {
  return at::zeros(shape, like(*this, options));
}

inline std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const {
  kernelpro_light::Gil gil;
  return kernelpro_light::tensors(ask_object(KERNELPRO_LIGHT_NAME("chunk"), chunks, dim));
}
inline std::vector<Tensor> Tensor::split(int64_t size, int64_t dim) const {
  kernelpro_light::Gil gil;
  return kernelpro_light::tensors(ask_object(KERNELPRO_LIGHT_NAME("split"), size, dim));
}
inline std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim = 0) {
  return self.chunk(chunks, dim);
}
inline std::vector<Tensor> split(const Tensor& self, int64_t size, int64_t dim = 0) {
  return self.split(size, dim);
}

// --- the methods of tensor.h, as functions -------------------------------------------------------

#define KERNELPRO_LIGHT_FUNCTION(name, most)                          \
  template <class... A>                                               \
  Tensor name(const Tensor& self, const A&... arguments) {            \
    return self.name(arguments...);                                   \
  }
KERNELPRO_LIGHT_METHODS(KERNELPRO_LIGHT_FUNCTION)
#define KERNELPRO_LIGHT_REDUCED(name)                                                             \
  inline Tensor name(const Tensor& self) { return self.name(); }                                  \
  inline Tensor name(const Tensor& self, IntArrayRef dims, bool keepdim = false) {                \
    return self.name(dims, keepdim);                                                              \
  }
KERNELPRO_LIGHT_REDUCED(sum)
KERNELPRO_LIGHT_REDUCED(mean)
KERNELPRO_LIGHT_REDUCED(amax)
KERNELPRO_LIGHT_REDUCED(amin)
inline Tensor reshape(const Tensor& self, IntArrayRef shape) { return self.reshape(shape); }
inline Tensor permute(const Tensor& self, IntArrayRef dims) { return self.permute(dims); }

// --- others, by torch's functions, which take these arguments in this order ----------------------

#define KERNELPRO_LIGHT_OTHER(name, python, most)                                 \
  template <class... A>                                                           \
  Tensor name(const Tensor& self, const A&... arguments) {                        \
    static_assert(sizeof...(A) <= most, "not by the light header");               \
    kernelpro_light::Gil gil;                                                     \
    return kernelpro_light::compute(KERNELPRO_LIGHT_TORCH(python), self, arguments...); \
  }
KERNELPRO_LIGHT_OTHER(maximum, "maximum", 1)
KERNELPRO_LIGHT_OTHER(minimum, "minimum", 1)
KERNELPRO_LIGHT_OTHER(outer, "outer", 1)
KERNELPRO_LIGHT_OTHER(baddbmm, "baddbmm", 2)
KERNELPRO_LIGHT_OTHER(where, "where", 2)
KERNELPRO_LIGHT_OTHER(embedding, "embedding", 1)
KERNELPRO_LIGHT_OTHER(linear, "_C._nn.linear", 2)
KERNELPRO_LIGHT_OTHER(silu, "_C._nn.silu", 0)
KERNELPRO_LIGHT_OTHER(leaky_relu, "_C._nn.leaky_relu", 1)
inline Tensor gelu(const Tensor& self, const std::string& approximate = "none") {
  kernelpro_light::Gil gil;
  kernelpro_light::Owned named(kernelpro_light::checked(PyDict_New()));
  kernelpro_light::Owned word(kernelpro_light::to_python(approximate));
  PyDict_SetItem(named.get(), KERNELPRO_LIGHT_NAME("approximate"), word.get());
  return Tensor::of(kernelpro_light::call_named(KERNELPRO_LIGHT_TORCH("_C._nn.gelu"),
                                                kernelpro_light::together(self), named.give()));
}
inline Tensor cat(TensorList tensors, int64_t dim = 0) {
  kernelpro_light::Gil gil;
  return kernelpro_light::compute(KERNELPRO_LIGHT_TORCH("cat"), tensors, dim);
}
inline Tensor stack(TensorList tensors, int64_t dim = 0) {
  kernelpro_light::Gil gil;
  return kernelpro_light::compute(KERNELPRO_LIGHT_TORCH("stack"), tensors, dim);
}
inline Tensor conv2d(const Tensor& input, const Tensor& weight,
                     const std::optional<Tensor>& bias = std::nullopt, IntArrayRef stride = 1,
                     IntArrayRef padding = 0, IntArrayRef dilation = 1, int64_t groups = 1) {
  kernelpro_light::Gil gil;
  return kernelpro_light::compute(KERNELPRO_LIGHT_TORCH("conv2d"), input, weight, bias, stride,
                                  padding, dilation, groups);
}
inline Tensor layer_norm(const Tensor& input, IntArrayRef shape,
                         const std::optional<Tensor>& weight = std::nullopt,
                         const std::optional<Tensor>& bias = std::nullopt, double eps = 1e-5) {
  kernelpro_light::Gil gil;
  return kernelpro_light::compute(KERNELPRO_LIGHT_TORCH("layer_norm"), input, shape, weight, bias,
                                  eps);
}

#define KERNELPRO_LIGHT_OPERATOR(op, name, reflected)                                           \
  inline Tensor operator op(const Tensor& a, const Tensor& b) { return a.name(b); }             \
  inline Tensor operator op(const Tensor& a, const Scalar& b) { return a.name(b); }             \
  inline Tensor operator op(const Scalar& a, const Tensor& b) {                                 \
    kernelpro_light::Gil gil;                                                                   \
    return b.ask(KERNELPRO_LIGHT_NAME(reflected), a);                                           \
  }
KERNELPRO_LIGHT_OPERATOR(+, add, "__radd__")
KERNELPRO_LIGHT_OPERATOR(-, sub, "__rsub__")
KERNELPRO_LIGHT_OPERATOR(*, mul, "__rmul__")
KERNELPRO_LIGHT_OPERATOR(/, div, "__rtruediv__")
KERNELPRO_LIGHT_OPERATOR(<, lt, "__gt__")
KERNELPRO_LIGHT_OPERATOR(<=, le, "__ge__")
KERNELPRO_LIGHT_OPERATOR(>, gt, "__lt__")
KERNELPRO_LIGHT_OPERATOR(>=, ge, "__le__")

inline bool equal(const Tensor& a, const Tensor& b) {
  kernelpro_light::Gil gil;
  return kernelpro_light::call(KERNELPRO_LIGHT_TORCH("equal"), a, b).get() == Py_True;
}

}  // namespace at

namespace torch {
// Turns recording of gradients off for a block; the judge has turned it off already.
struct NoGradGuard {
  NoGradGuard() : before_(enabled()) { set(false); }
  ~NoGradGuard() { set(before_); }
  NoGradGuard(const NoGradGuard&) = delete;

 private:
  static bool enabled() {
    kernelpro_light::Gil gil;
    return kernelpro_light::call(KERNELPRO_LIGHT_TORCH("is_grad_enabled")).get() == Py_True;
  }
  static void set(bool on) {
    kernelpro_light::Gil gil;
    kernelpro_light::call(KERNELPRO_LIGHT_TORCH("_C._set_grad_enabled"), on);
  }
  bool before_;
};
}  // namespace torch
