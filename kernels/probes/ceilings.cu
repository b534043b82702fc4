// Probes of a GPU's ceilings: their work is known by construction (INSTRUCTIONS in ceilings.py).
// Values depend on the thread and end in a store that never happens, so that nothing is removed.
#include <cstdint>

constexpr int CHAINS = 8; // independent of each other: no instruction waits for the one before
constexpr int LOADS = 4;  // 16-byte loads per lane, all in flight before the first is used

extern "C" __global__ void ceil_empty() {}

// `rounds` times 512 FFMA per warp.
extern "C" __global__ void __launch_bounds__(512, 4) ceil_fma(float *out, uint64_t rounds) {
  const float a = 0.5f + 0.0001f * threadIdx.x, b = 1.0f - 0.0001f * threadIdx.x;
  float x[CHAINS];
  for (int i = 0; i < CHAINS; ++i) x[i] = threadIdx.x + i;
#pragma unroll 1
  for (int round = int(rounds); round > 0; --round)
#pragma unroll
    for (int step = 0; step < 512 / CHAINS; ++step)
#pragma unroll
      for (int i = 0; i < CHAINS; ++i) x[i] = fmaf(x[i], a, b);
  float sum = 0;
  for (int i = 0; i < CHAINS; ++i) sum += x[i];
  if (sum == 1234.5f) out[0] = sum;
}

// `rounds` times 256 FFMA and 256 LOP3 per warp, alternating: on some chips either pipe alone takes
// an instruction every second cycle, and both together take one every cycle.
extern "C" __global__ void __launch_bounds__(512, 4) ceil_issue(float *out, uint64_t rounds) {
  const float a = 0.5f + 0.0001f * threadIdx.x, b = 1.0f - 0.0001f * threadIdx.x;
  const uint32_t mask = threadIdx.x * 0x9e3779b1u;
  float x[CHAINS];
  uint32_t y[CHAINS];
  for (int i = 0; i < CHAINS; ++i) x[i] = threadIdx.x + i, y[i] = (threadIdx.x + i) * 0x85ebca6bu;
#pragma unroll 1
  for (int round = int(rounds); round > 0; --round)
#pragma unroll
    for (int step = 0; step < 256 / CHAINS; ++step)
#pragma unroll
      for (int i = 0; i < CHAINS; ++i) {
        x[i] = fmaf(x[i], a, b);
        asm("lop3.b32 %0, %0, %1, %2, 0x78;" : "+r"(y[i]) : "r"(y[(i + 1) % CHAINS]), "r"(mask));
      }
  float sum = 0;
  for (int i = 0; i < CHAINS; ++i) sum += x[i] + y[i];
  if (sum == 1234.5f) out[0] = sum;
}

// `rounds` times 64 mma.sync m16n8k16 per warp, bf16 in and fp32 out, values between 1 and 2.
extern "C" __global__ void __launch_bounds__(512, 2) ceil_matrix(float *out, uint64_t rounds) {
  uint32_t a[4], b[2];
  float d[CHAINS][4];
  for (int i = 0; i < 4; ++i) a[i] = 0x3f803f80u | ((threadIdx.x * 0x9e3779b1u + i) & 0x007f007fu);
  for (int i = 0; i < 2; ++i) b[i] = 0x3f803f80u | ((threadIdx.x * 0x85ebca6bu + i) & 0x007f007fu);
  for (int i = 0; i < CHAINS * 4; ++i) d[i / 4][i % 4] = threadIdx.x + i;
#pragma unroll 1
  for (int round = int(rounds); round > 0; --round)
#pragma unroll
    for (int step = 0; step < 64 / CHAINS; ++step)
#pragma unroll
      for (int i = 0; i < CHAINS; ++i)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                     "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  float sum = 0;
  for (int i = 0; i < CHAINS * 4; ++i) sum += d[i / 4][i % 4];
  if (sum == 1234.5f) out[0] = sum;
}

// Every block reads `tiles` tiles of its own of `in`, `rounds` times, past L1; a tile is LOADS x 16
// bytes per thread. No tile is shared, because requests of several SMs for one line are merged on
// their way to the L2.
extern "C" __global__ void __launch_bounds__(512, 4)
ceil_l2(float *out, uint64_t rounds, const float4 *in, uint64_t tiles) {
  const float4 *mine = in + blockIdx.x * tiles * LOADS * blockDim.x
                       + threadIdx.x / 32 * LOADS * 32 + threadIdx.x % 32;
  int tile = 0;
  float sum = 0;
#pragma unroll 1
  for (int left = int(rounds * tiles); left > 0; --left) {
    const float4 *at = mine + uint64_t(tile) * LOADS * blockDim.x;
    float4 v[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; ++i)
      asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                   : "=f"(v[i].x), "=f"(v[i].y), "=f"(v[i].z), "=f"(v[i].w)
                   : "l"(at + i * 32));
#pragma unroll
    for (int i = 0; i < LOADS; ++i) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    tile = tile + 1 == int(tiles) ? 0 : tile + 1;
  }
  if (sum == 1234.5f) out[0] = sum;
}
