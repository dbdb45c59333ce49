// A number in the layer's own dtype, and the functions a cell is made of. VALUE 0: bfloat16, 1: float16, 2: float32.
typedef unsigned short u16;
typedef unsigned int u32;
#define DI static __device__ __forceinline__

#if VALUE == 2
typedef float V;
DI float tanh_of(float x) { return tanhf(x); }
DI float sigmoid_of(float x) { return 1.f/(1.f + expf(-x)); }
#elif VALUE == 1
typedef u16 V;
DI float wide(u16 v) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v)); return f; }
DI void put(u16& to, float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to) : "f"(v)); }
// float16 has more digits than tanh.approx: exp and a division keep them.
DI float tanh_of(float x) { return 1.f - __fdividef(2.f, 1.f + __expf(fminf(2.f*x, 80.f))); }
DI float sigmoid_of(float x) { return __fdividef(1.f, 1.f + __expf(fminf(-x, 80.f))); }
#else
typedef u16 V;
DI float wide(u16 v) { return __uint_as_float((u32)v << 16); }
// To the nearest, ties to even; in whole numbers, since not every GPU has an instruction for it.
DI void put(u16& to, float v) {
  const u32 bits = __float_as_uint(v);
  to = v != v ? (u16)0x7FFF : (u16)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
DI float tanh_of(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DI float sigmoid_of(float x) { return fmaf(tanh_of(0.5f*x), 0.5f, 0.5f); }
#endif
DI float wide(float v) { return v; }
DI void put(float& to, float v) { to = v; }
DI float from_lane_xor(float v, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, v, mask); }
