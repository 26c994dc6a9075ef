// TensorAccessor and its packed kin: strided elements by index, on the host and in kernels.
#pragma once

#include "types.h"

namespace at {

template <class T>
struct DefaultPtrTraits {
  typedef T* PtrType;
};
template <class T>
struct RestrictPtrTraits {
  typedef T* __restrict PtrType;
};

template <class T, size_t N, template <class U> class P = DefaultPtrTraits, class I = int64_t>
class TensorAccessor {
 public:
  typedef typename P<T>::PtrType PtrType;
  C10_HOST_DEVICE TensorAccessor(PtrType data, const I* sizes, const I* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  C10_HOST_DEVICE I size(I i) const { return sizes_[i]; }
  C10_HOST_DEVICE I stride(I i) const { return strides_[i]; }
  C10_HOST_DEVICE PtrType data() const { return data_; }
  C10_HOST_DEVICE decltype(auto) operator[](I i) const {
    if constexpr (N == 1) return at_end(i);
    else return TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }

 private:
  C10_HOST_DEVICE T& at_end(I i) const { return data_[strides_[0] * i]; }
  PtrType data_;
  const I* sizes_;
  const I* strides_;
};

template <class T, size_t N, template <class U> class P = DefaultPtrTraits, class I = int64_t>
class GenericPackedTensorAccessor {
 public:
  typedef typename P<T>::PtrType PtrType;
  GenericPackedTensorAccessor(PtrType data, const int64_t* sizes, const int64_t* strides)
      : data_(data) {
    for (size_t i = 0; i < N; ++i) {
      sizes_[i] = I(sizes[i]);
      strides_[i] = I(strides[i]);
    }
  }
  C10_HOST_DEVICE I size(I i) const { return sizes_[i]; }
  C10_HOST_DEVICE I stride(I i) const { return strides_[i]; }
  C10_HOST_DEVICE PtrType data() const { return data_; }
  C10_HOST_DEVICE decltype(auto) operator[](I i) const {
    if constexpr (N == 1) return at_end(i);
    else return TensorAccessor<T, N - 1, P, I>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
  }

 private:
  C10_HOST_DEVICE T& at_end(I i) const { return data_[strides_[0] * i]; }
  PtrType data_;
  I sizes_[N];
  I strides_[N];
};

template <class T, size_t N, template <class U> class P = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, P, int32_t>;
template <class T, size_t N, template <class U> class P = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, P, int64_t>;

}  // namespace at
