// Kernels whose loads are known by construction, so their counts show what a counter sees.
// Each runs BLOCKS x 128 threads; every warp executes its load instruction ROUNDS times.
#include <cstdint>

constexpr int ROUNDS = 64;

__device__ const float4 *place(const float4 *in, int round) {
  return in + (size_t(blockIdx.x) * ROUNDS + round) * blockDim.x + threadIdx.x;
}

extern "C" __global__ void cal_ldg(const float4 *in, float *out) {
  float sum = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(place(in, round)));
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 1234.5f) out[0] = sum;
}

// Every second warp's loads have no lane on: executed, not active.
extern "C" __global__ void cal_predicated(const float4 *in, float *out) {
  float sum = 0;
  const int on = (threadIdx.x / 32) & 1;
  for (int round = 0; round < ROUNDS; ++round) {
    float v = 0;
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; @p ld.global.cg.f32 %0, [%1]; }"
                 : "+f"(v) : "l"(place(in, round)), "r"(on));
    sum += v;
  }
  if (sum == 1234.5f) out[0] = sum;
}

template <bool BYPASS> __device__ void copy_async(const float4 *in, float *out) {
  __shared__ float4 tile[128];
  const unsigned at = __cvta_generic_to_shared(&tile[threadIdx.x]);
  for (int round = 0; round < ROUNDS; ++round) {
    if (BYPASS)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(place(in, round)));
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(at), "l"(place(in, round)));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
  }
  if (tile[threadIdx.x].x == 1234.5f) out[0] = 1;
}
extern "C" __global__ void cal_async_ca(const float4 *in, float *out) { copy_async<false>(in, out); }
extern "C" __global__ void cal_async_cg(const float4 *in, float *out) { copy_async<true>(in, out); }

// Every warp stores and loads its own stack ROUNDS times. The position depends on the launch, or the
// assembler would keep the stack in registers.
extern "C" __global__ void cal_local(const float4 *, float *out) {
  uint32_t stack[ROUNDS];
  for (int i = 0; i < ROUNDS; ++i)
    stack[(i * blockDim.x + threadIdx.x) % ROUNDS] = i;
  uint32_t sum = 0;
  for (int i = 0; i < ROUNDS; ++i) sum += stack[(i * gridDim.x + blockIdx.x) % ROUNDS] ^ i;
  if (sum == 12345u) out[0] = sum;
}

#if __CUDA_ARCH__ >= 900
constexpr int BULK_BYTES = 2048;
// One thread a block copies ROUNDS times BULK_BYTES to shared memory by the TMA engine.
extern "C" __global__ void cal_bulk(const float4 *in, float *out) {
  __shared__ alignas(128) float4 tile[BULK_BYTES / 16];
  __shared__ alignas(8) uint64_t barrier;
  const unsigned bar = __cvta_generic_to_shared(&barrier), at = __cvta_generic_to_shared(tile);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar));
  __syncthreads();
  for (int round = 0; round < ROUNDS; ++round) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(BULK_BYTES));
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                   " [%0], [%1], %2, [%3];"
                   ::"r"(at), "l"(in + (size_t(blockIdx.x) * ROUNDS + round) * (BULK_BYTES / 16)),
                   "r"(BULK_BYTES), "r"(bar) : "memory");
    }
    asm volatile("{ .reg .pred p; again_%=: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;"
                 " @!p bra again_%=; }" ::"r"(bar), "r"(round & 1) : "memory");
    __syncthreads();
  }
  if (tile[threadIdx.x].x == 1234.5f) out[0] = 1;
}
#endif
