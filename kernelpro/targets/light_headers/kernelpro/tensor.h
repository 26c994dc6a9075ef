// at::Tensor: a counted reference to a Python tensor, with its metadata read once.
//
// What needs more than metadata is asked of torch in Python, so it is torch's own operator.
#pragma once

#include <cmath>

#include "accessor.h"
#include "python.h"

namespace kernelpro_light {

struct TensorBody {
  std::atomic<int> count{1};
  PyObject* object = nullptr;
  void* data = nullptr;
  int64_t dim = 0, numel = 1;
  c10::ScalarType type = c10::ScalarType::Undefined;
  c10::Device device{c10::kCPU};
  bool contiguous = true;
  int64_t* more = nullptr;  // sizes and strides of a tensor of many dimensions
  int64_t few[12];
  const int64_t* sizes() const { return more ? more : few; }
  const int64_t* strides() const { return sizes() + dim; }
  ~TensorBody() {
    delete[] more;
    if (!Py_IsInitialized()) return;  // a global of the source outlives Python
    Gil gil;
    Py_XDECREF(object);
  }
  void read();
};

inline void TensorBody::read() {
  Owned shape(checked(PyObject_GetAttr(object, KERNELPRO_LIGHT_NAME("shape"))));
  Owned stride(checked(PyObject_CallMethodNoArgs(object, KERNELPRO_LIGHT_NAME("stride"))));
  Owned pointer(checked(PyObject_CallMethodNoArgs(object, KERNELPRO_LIGHT_NAME("data_ptr"))));
  Owned dtype(checked(PyObject_GetAttr(object, KERNELPRO_LIGHT_NAME("dtype"))));
  Owned index(checked(PyObject_CallMethodNoArgs(object, KERNELPRO_LIGHT_NAME("get_device"))));
  data = PyLong_AsVoidPtr(pointer.get());
  type = type_of_dtype(dtype.get());
  const long place = PyLong_AsLong(index.get());
  device = place < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, c10::DeviceIndex(place));
  dim = PyTuple_GET_SIZE(shape.get());
  if (2 * dim > int64_t(sizeof few / sizeof *few)) more = new int64_t[2 * dim];
  int64_t* into = more ? more : few;
  for (int64_t i = 0; i < dim; ++i) {
    into[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), i));
    into[dim + i] = PyLong_AsLongLong(PyTuple_GET_ITEM(stride.get(), i));
  }
  numel = 1;
  contiguous = true;
  for (int64_t i = dim - 1; i >= 0; --i) {
    if (into[i] != 1 && into[dim + i] != numel) contiguous = false;
    numel *= into[i];
  }
  if (numel == 0) contiguous = true;
  if (PyErr_Occurred()) throw PythonError();
}

template <class... A>
Owned call(PyObject* function, const A&... arguments) {
  PyObject* given[sizeof...(A) + 1] = {nullptr};
  size_t count = 0;
  struct Drop {
    PyObject** given;
    size_t& count;
    ~Drop() {
      for (size_t i = 1; i <= count; ++i) Py_DECREF(given[i]);
    }
  } drop{given, count};
  ((given[count + 1] = to_python(arguments), ++count), ...);
  return Owned(checked(PyObject_Vectorcall(
      function, given + 1, count | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr)));
}

inline Owned call_named(PyObject* function, PyObject* positional, PyObject* named) {
  Owned arguments(positional), words(named);
  return Owned(checked(PyObject_Call(function, arguments.get(), words.get())));
}

}  // namespace kernelpro_light

namespace at {

using TensorList = ArrayRef<Tensor>;

// What the deprecated Tensor::type() gives.
struct DeprecatedTypeProperties {
  ScalarType type;
  Device device_;
  ScalarType scalarType() const { return type; }
  bool is_cuda() const { return device_.is_cuda(); }
  std::string toString() const {
    return std::string(is_cuda() ? "CUDA" : "CPU") + c10::toString(type) + "Type";
  }
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other) : body_(other.body_) {
    if (body_) body_->count.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& other) noexcept : body_(other.body_) { other.body_ = nullptr; }
  Tensor& operator=(const Tensor& other) {
    Tensor copy(other);
    std::swap(body_, copy.body_);
    return *this;
  }
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  ~Tensor() { reset(); }
  void reset() {
    if (body_ && body_->count.fetch_sub(1, std::memory_order_acq_rel) == 1) delete body_;
    body_ = nullptr;
  }

  // Takes over a reference to a Python tensor; the lock must be held.
  static Tensor of(kernelpro_light::Owned object) {
    Tensor made;
    made.body_ = new kernelpro_light::TensorBody;
    made.body_->object = object.give();
    made.body_->read();
    return made;
  }
  PyObject* object() const { return known().object; }

  bool defined() const { return body_ != nullptr; }
  int64_t dim() const { return known().dim; }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return known().numel; }
  IntArrayRef sizes() const { return {known().sizes(), size_t(dim())}; }
  IntArrayRef strides() const { return {known().strides(), size_t(dim())}; }
  int64_t size(int64_t i) const { return sizes()[place(i)]; }
  int64_t stride(int64_t i) const { return strides()[place(i)]; }
  ScalarType scalar_type() const { return known().type; }
  TypeMeta dtype() const { return known().type; }
  DeprecatedTypeProperties type() const { return {known().type, known().device}; }
  int64_t element_size() const { return int64_t(c10::elementSize(known().type)); }
  int64_t itemsize() const { return element_size(); }
  size_t nbytes() const { return size_t(numel() * element_size()); }
  Device device() const { return known().device; }
  int64_t get_device() const { return known().device.index(); }
  bool is_cuda() const { return known().device.is_cuda(); }
  bool is_cpu() const { return known().device.is_cpu(); }
  bool is_sparse() const { return false; }  // a sparse tensor has no strides, so none comes here
  bool is_floating_point() const { return c10::isFloatingType(known().type); }
  bool is_contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  bool requires_grad() const;
  bool is_same(const Tensor& other) const {
    return body_ == other.body_ || (body_ && other.body_ && object() == other.object());
  }
  TensorOptions options() const { return TensorOptions(known().type).device(known().device); }
  MemoryFormat suggest_memory_format() const {
    return !is_contiguous() && dim() == 4 && is_contiguous(MemoryFormat::ChannelsLast)
               ? MemoryFormat::ChannelsLast
               : MemoryFormat::Contiguous;
  }

  template <class T>
  T* data_ptr() const {
    using Plain = std::remove_const_t<T>;
    constexpr auto wanted = c10::CppTypeToScalarType<Plain>::value;
    TORCH_CHECK(known().type == wanted, "expected scalar type ", wanted, " but found ",
                known().type);
    return static_cast<T*>(body_->data);
  }
  template <class T>
  T* mutable_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  const T* const_data_ptr() const { return data_ptr<T>(); }
  template <class T>
  T* data() const { return data_ptr<T>(); }
  void* data_ptr() const { return known().data; }
  void* mutable_data_ptr() const { return known().data; }
  const void* const_data_ptr() const { return known().data; }

  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const& {
    TORCH_CHECK(dim() == int64_t(N), "TensorAccessor expected ", N, " dims but tensor has ", dim());
    return TensorAccessor<T, N>(data_ptr<T>(), known().sizes(), known().strides());
  }
  template <class T, size_t N, template <class U> class P = DefaultPtrTraits>
  PackedTensorAccessor32<T, N, P> packed_accessor32() const& {
    TORCH_CHECK(numel() <= int64_t(2147483647),
                "numel needs to be smaller than int32_t max; otherwise, please use "
                "packed_accessor64");
    return packed<T, N, P, int32_t>();
  }
  template <class T, size_t N, template <class U> class P = DefaultPtrTraits>
  PackedTensorAccessor64<T, N, P> packed_accessor64() const& { return packed<T, N, P, int64_t>(); }

  // Operators that kernels' host code uses, by torch's own functions. `ask` calls a method.
  template <class... A>
  Tensor ask(PyObject* name, const A&... arguments) const {
    return of(ask_object(name, arguments...));
  }
  template <class... A>
  kernelpro_light::Owned ask_object(PyObject* name, const A&... arguments) const {
    kernelpro_light::Owned method(kernelpro_light::checked(PyObject_GetAttr(object(), name)));
    return kernelpro_light::call(method.get(), arguments...);
  }

// More arguments than Python's method takes by position are an error of the compiler, after which
// torch's own headers decide.
#define KERNELPRO_LIGHT_METHOD(name, most)                              \
  template <class... A>                                                 \
  Tensor name(const A&... arguments) const {                            \
    static_assert(sizeof...(A) <= most, "not by the light header");     \
    kernelpro_light::Gil gil;                                           \
    return ask(KERNELPRO_LIGHT_NAME(#name), arguments...);              \
  }
// Those that torch also has as functions of the same arguments.
#define KERNELPRO_LIGHT_METHODS(_)                                                              \
  _(abs, 0) _(exp, 0) _(log, 0) _(sqrt, 0) _(rsqrt, 0) _(sin, 0) _(cos, 0) _(tanh, 0)           \
  _(sigmoid, 0) _(relu, 0) _(neg, 0) _(floor, 0) _(ceil, 0) _(round, 0) _(erf, 0)               \
  _(reciprocal, 0) _(square, 0) _(t, 0) _(clone, 0) _(detach, 0) _(isnan, 0) _(logical_not, 0)  \
  _(mm, 1) _(bmm, 1) _(matmul, 1) _(mv, 1) _(dot, 1) _(add, 1) _(sub, 1) _(mul, 1) _(div, 1)    \
  _(pow, 1) _(eq, 1) _(ne, 1) _(lt, 1) _(le, 1) _(gt, 1) _(ge, 1) _(bitwise_and, 1)             \
  _(clamp, 2) _(clamp_min, 1) _(clamp_max, 1) _(select, 2) _(narrow, 3) _(transpose, 2)         \
  _(unsqueeze, 1) _(squeeze, 1) _(flatten, 2) _(softmax, 2) _(log_softmax, 2) _(argmax, 2)      \
  _(argmin, 2) _(cumsum, 1) _(cumprod, 1) _(masked_fill, 2) _(index_select, 2) _(addmm, 2)      \
  _(tril, 1) _(triu, 1) _(any, 2) _(all, 2) _(max, 0) _(min, 0) _(prod, 0)
  KERNELPRO_LIGHT_METHODS(KERNELPRO_LIGHT_METHOD)
  KERNELPRO_LIGHT_METHOD(cpu, 0)
  KERNELPRO_LIGHT_METHOD(cuda, 0)
  KERNELPRO_LIGHT_METHOD(type_as, 1)
  KERNELPRO_LIGHT_METHOD(expand_as, 1)
  KERNELPRO_LIGHT_METHOD(view_as, 1)
  KERNELPRO_LIGHT_METHOD(reshape_as, 1)

#define KERNELPRO_LIGHT_SIZED(name)                     \
  Tensor name(IntArrayRef numbers) const {              \
    kernelpro_light::Gil gil;                           \
    return ask(KERNELPRO_LIGHT_NAME(#name), numbers);   \
  }
  KERNELPRO_LIGHT_SIZED(reshape)
  KERNELPRO_LIGHT_SIZED(permute)
  KERNELPRO_LIGHT_SIZED(expand)
  KERNELPRO_LIGHT_SIZED(repeat)
  KERNELPRO_LIGHT_SIZED(flip)
  Tensor view(IntArrayRef numbers) const {
    kernelpro_light::Gil gil;
    return ask(KERNELPRO_LIGHT_NAME("view"), numbers);
  }
  Tensor view(ScalarType type) const {
    kernelpro_light::Gil gil;
    return ask(KERNELPRO_LIGHT_NAME("view"), type);
  }
  Tensor new_empty(IntArrayRef shape, TensorOptions options = {}) const;
  Tensor new_zeros(IntArrayRef shape, TensorOptions options = {}) const;

#define KERNELPRO_LIGHT_REDUCTION(name)                                                       \
  Tensor name() const {                                                                       \
    kernelpro_light::Gil gil;                                                                 \
    return ask(KERNELPRO_LIGHT_NAME(#name));                                                  \
  }                                                                                           \
  Tensor name(IntArrayRef dims, bool keepdim = false) const {                                 \
    kernelpro_light::Gil gil;                                                                 \
    return ask(KERNELPRO_LIGHT_NAME(#name), dims, keepdim);                                   \
  }                                                                                           \
  Tensor name(int64_t d, bool keepdim = false) const { return name(IntArrayRef(d), keepdim); } \
  Tensor name(int d, bool keepdim = false) const { return name(int64_t(d), keepdim); }
  KERNELPRO_LIGHT_REDUCTION(sum)
  KERNELPRO_LIGHT_REDUCTION(mean)
  KERNELPRO_LIGHT_REDUCTION(amax)
  KERNELPRO_LIGHT_REDUCTION(amin)

#define KERNELPRO_LIGHT_IN_PLACE(name, most)                            \
  template <class... A>                                                 \
  const Tensor& name(const A&... arguments) const {                     \
    static_assert(sizeof...(A) <= most, "not by the light header");     \
    kernelpro_light::Gil gil;                                           \
    ask_object(KERNELPRO_LIGHT_NAME(#name), arguments...);              \
    return *this;                                                       \
  }
  KERNELPRO_LIGHT_IN_PLACE(zero_, 0)
  KERNELPRO_LIGHT_IN_PLACE(relu_, 0)
  KERNELPRO_LIGHT_IN_PLACE(fill_, 1)
  KERNELPRO_LIGHT_IN_PLACE(add_, 1)
  KERNELPRO_LIGHT_IN_PLACE(sub_, 1)
  KERNELPRO_LIGHT_IN_PLACE(mul_, 1)
  KERNELPRO_LIGHT_IN_PLACE(div_, 1)
  KERNELPRO_LIGHT_IN_PLACE(copy_, 2)
  KERNELPRO_LIGHT_IN_PLACE(clamp_, 2)

  Tensor contiguous(MemoryFormat format = MemoryFormat::Contiguous) const;
  Tensor to(TensorOptions options, bool non_blocking = false, bool copy = false) const;
  Tensor to(ScalarType type) const { return to(TensorOptions(type)); }
  Tensor to(TypeMeta type) const { return to(TensorOptions(type)); }
  Tensor to(Device device) const { return to(TensorOptions(device)); }
  Tensor to(DeviceType type) const { return to(TensorOptions(type)); }
  Tensor to(Device device, ScalarType type) const {
    return to(TensorOptions(device).dtype(type));
  }
  Tensor toType(ScalarType type) const { return to(type); }
  Tensor slice(int64_t dim, std::optional<int64_t> start = std::nullopt,
               std::optional<int64_t> end = std::nullopt, int64_t step = 1) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const;
  std::vector<Tensor> split(int64_t size, int64_t dim = 0) const;
  Tensor operator[](int64_t i) const { return select(int64_t(0), i); }
  template <class T>
  T item() const;
  Scalar item() const;

  Tensor operator-() const { return neg(); }
  Tensor& operator+=(const Tensor& other) { add_(other); return *this; }
  Tensor& operator-=(const Tensor& other) { sub_(other); return *this; }
  Tensor& operator*=(const Tensor& other) { mul_(other); return *this; }
  Tensor& operator/=(const Tensor& other) { div_(other); return *this; }
  Tensor& operator+=(const Scalar& other) { add_(other); return *this; }
  Tensor& operator-=(const Scalar& other) { sub_(other); return *this; }
  Tensor& operator*=(const Scalar& other) { mul_(other); return *this; }
  Tensor& operator/=(const Scalar& other) { div_(other); return *this; }

 private:
  const kernelpro_light::TensorBody& known() const {
    TORCH_CHECK(body_ != nullptr, "Expected a proper Tensor but got None (or an undefined Tensor "
                                  "in C++)");
    return *body_;
  }
  size_t place(int64_t i) const {
    const int64_t range = dim() > 0 ? dim() : 1;
    TORCH_CHECK_INDEX(i >= -range && i < range,
                      "Dimension out of range (expected to be in range of [", -range, ", ",
                      range - 1, "], but got ", i, ")");
    TORCH_CHECK_INDEX(dim() > 0, "dimension specified as ", i, " but tensor has no dimensions");
    return size_t(i < 0 ? i + dim() : i);
  }
  template <class T, size_t N, template <class U> class P, class I>
  GenericPackedTensorAccessor<T, N, P, I> packed() const {
    TORCH_CHECK(dim() == int64_t(N), "TensorAccessor expected ", N, " dims but tensor has ", dim());
    return GenericPackedTensorAccessor<T, N, P, I>(data_ptr<T>(), known().sizes(),
                                                   known().strides());
  }

  kernelpro_light::TensorBody* body_ = nullptr;
};

using OptionalTensorRef = std::optional<Tensor>;

inline std::optional<Device> device_of(const Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  return tensor.device();
}

}  // namespace at

namespace c10 { using at::Tensor; }

namespace kernelpro_light {

inline PyObject* to_python(const at::Tensor& tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  PyObject* object = tensor.object();
  Py_INCREF(object);
  return object;
}
inline PyObject* to_python(at::TensorList tensors) { return to_python(tensors.vec()); }

template <class... T>
PyObject* to_python(const std::tuple<T...>& items) {
  Owned tuple(checked(PyTuple_New(Py_ssize_t(sizeof...(T)))));
  std::apply(
      [&](const T&... item) {
        Py_ssize_t i = 0;
        (PyTuple_SET_ITEM(tuple.get(), i++, to_python(item)), ...);
      },
      items);
  return tuple.give();
}

// Keyword arguments of a factory: only what the options say.
inline PyObject* keywords(const c10::TensorOptions& options) {
  Owned named(checked(PyDict_New()));
  const auto set = [&](PyObject* name, PyObject* value) {
    Owned owned(value);
    if (PyDict_SetItem(named.get(), name, value) != 0) throw PythonError();
  };
  if (options.dtype_) set(KERNELPRO_LIGHT_NAME("dtype"), to_python(*options.dtype_));
  if (options.device_) set(KERNELPRO_LIGHT_NAME("device"), to_python(*options.device_));
  if (options.requires_grad_ && *options.requires_grad_)
    set(KERNELPRO_LIGHT_NAME("requires_grad"), PyBool_FromLong(1));
  if (options.memory_format_)
    set(KERNELPRO_LIGHT_NAME("memory_format"), to_python(*options.memory_format_));
  return named.give();
}

template <class... A>
PyObject* together(const A&... arguments) {
  return to_python(std::tuple<const A&...>(arguments...));
}

}  // namespace kernelpro_light

namespace at {

inline bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::Contiguous) return known().contiguous;
  kernelpro_light::Gil gil;
  kernelpro_light::Owned method(
      kernelpro_light::checked(PyObject_GetAttr(object(), KERNELPRO_LIGHT_NAME("is_contiguous"))));
  const auto answer = kernelpro_light::call_named(
      method.get(), kernelpro_light::together(),
      kernelpro_light::keywords(TensorOptions(format)));
  return answer.get() == Py_True;
}

inline bool Tensor::requires_grad() const {
  kernelpro_light::Gil gil;
  const kernelpro_light::Owned answer(
      kernelpro_light::checked(PyObject_GetAttr(object(), KERNELPRO_LIGHT_NAME("requires_grad"))));
  return answer.get() == Py_True;
}

inline Tensor Tensor::contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::Contiguous && known().contiguous) return *this;
  kernelpro_light::Gil gil;
  kernelpro_light::Owned method(
      kernelpro_light::checked(PyObject_GetAttr(object(), KERNELPRO_LIGHT_NAME("contiguous"))));
  return of(kernelpro_light::call_named(method.get(), kernelpro_light::together(),
                                        kernelpro_light::keywords(TensorOptions(format))));
}

inline Tensor Tensor::to(TensorOptions options, bool non_blocking, bool copy) const {
  kernelpro_light::Gil gil;
  kernelpro_light::Owned method(
      kernelpro_light::checked(PyObject_GetAttr(object(), KERNELPRO_LIGHT_NAME("to"))));
  kernelpro_light::Owned named(kernelpro_light::keywords(options));
  if (non_blocking) PyDict_SetItem(named.get(), KERNELPRO_LIGHT_NAME("non_blocking"), Py_True);
  if (copy) PyDict_SetItem(named.get(), KERNELPRO_LIGHT_NAME("copy"), Py_True);
  return of(kernelpro_light::call_named(method.get(), kernelpro_light::together(), named.give()));
}

inline Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                            int64_t step) const {
  kernelpro_light::Gil gil;
  return of(kernelpro_light::call(KERNELPRO_LIGHT_TORCH("ops.aten.slice"), *this, dim, start, end,
                                  step));
}

inline Scalar Tensor::item() const {
  kernelpro_light::Gil gil;
  const auto value = ask_object(KERNELPRO_LIGHT_NAME("item"));
  if (PyBool_Check(value.get())) return Scalar(value.get() == Py_True);
  const bool whole = PyLong_Check(value.get());
  const int64_t integer = whole ? PyLong_AsLongLong(value.get()) : 0;
  const double real = whole ? 0 : PyFloat_AsDouble(value.get());
  if (PyErr_Occurred()) throw kernelpro_light::PythonError();
  return whole ? Scalar(integer) : Scalar(real);
}

template <class T>
T Tensor::item() const {
  return item().to<T>();
}

}  // namespace at
