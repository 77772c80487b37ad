// Conversion between vectors and Eigen packets.

#ifndef JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_PACKET_H_
#define JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_PACKET_H_

#include "Eigen/Core"
#include "jaxlib/ipu/runtime/model/kernels/simd/simd.h"

namespace ipu::model::IPU_SIMD_NS {

template <typename T>
using Packet = typename Eigen::internal::packet_traits<T>::type;

template <typename V>
inline Packet<Element<V>> ToPacket(const V& v) {
  return BitCast<Packet<Element<V>>>(v);
}

template <typename V>
inline V FromPacket(const Packet<Element<V>>& p) {
  return BitCast<V>(p);
}

}  // namespace ipu::model::IPU_SIMD_NS

#endif  // JAXLIB_IPU_RUNTIME_MODEL_KERNELS_SIMD_PACKET_H_
