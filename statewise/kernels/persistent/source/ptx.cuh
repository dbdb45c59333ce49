// The instructions the kernels are made of, one function each. HALF: 16-bit values are float16, else bfloat16.
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define DI static __device__ __forceinline__

#if HALF
#define KIND "f16"
// float16 has more digits than tanh.approx: exp and a division keep them.
DI float tanh_of(float x) { return 1.f - __fdividef(2.f, 1.f + __expf(fminf(2.f*x, 80.f))); }
DI float sigmoid_of(float x) { return __fdividef(1.f, 1.f + __expf(fminf(-x, 80.f))); }
DI float widen(u16 v) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v)); return f; }
DI float low(u32 v) { return widen((u16)(v & 0xFFFFu)); }
DI float high(u32 v) { return widen((u16)(v >> 16)); }
#else
#define KIND "bf16"
DI float tanh_of(float x) { float y; asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DI float sigmoid_of(float x) { return fmaf(tanh_of(0.5f*x), 0.5f, 0.5f); }
DI float widen(u16 v) { return __uint_as_float((u32)v << 16); }
DI float low(u32 v) { return __uint_as_float(v << 16); }
DI float high(u32 v) { return __uint_as_float(v & 0xFFFF0000u); }
#endif
// Rounding turns every NaN into 0x7FFF, so no value is ever taken for the mark 0xFFFF of "not there yet".
DI u32 pack(float a, float b) { u32 r; asm("cvt.rn." KIND "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
DI u16 narrow(float a) { u16 r; asm("cvt.rn." KIND ".f32 %0, %1;" : "=h"(r) : "f"(a)); return r; }
DI void mma(float (&c)[4], const uint4& a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

DI float from_lane_xor(float v, int mask) { return __shfl_xor_sync(0xFFFFFFFFu, v, mask); }
DI bool any_lane(bool v) { return __any_sync(0xFFFFFFFFu, v); }

// Global memory as a post-box: a reader asks until every word it wants has come.
DI uint4 ask(const void* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
DI void ask_again(uint4& v, const void* p, bool missing) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4]; }"
    : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w) : "l"(p), "r"((u32)missing) : "memory");
}
DI bool absent(const uint4& v) { return v.x == ~0u || v.y == ~0u || v.z == ~0u || v.w == ~0u; }
DI void publish(void* p, u32 v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory"); }
DI void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }
DI u64 nanoseconds() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }

// Shared memory of the other blocks of a cluster.
#define CLUSTERS (__CUDA_ARCH__ >= 900)
DI u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DI u32 in_block(u32 a, u32 rank) { u32 o; asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(o) : "r"(a), "r"(rank)); return o; }
DI u32 cluster_rank() { u32 r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DI void cluster_sync() { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DI void send(u32 a, uint4 v, u32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];"
    :: "r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier) : "memory");
}
DI void send(u32 a, float4 v, u32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];"
    :: "r"(a), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier) : "memory");
}
DI void send(u32 a, float2 v, u32 barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1,%2}, [%3];"
    :: "r"(a), "f"(v.x), "f"(v.y), "r"(barrier) : "memory");
}
DI void barrier_init(u32 a) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(a) : "memory"); }
DI void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DI void barrier_expect(u32 a, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(a), "r"(bytes) : "memory"); }
// What is waited for lies in shared memory. A scope wider than the block's would empty the first cache at every wait.
DI bool barrier_passed(u32 a, u32 parity) {
  u32 r;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
    : "=r"(r) : "r"(a), "r"(parity) : "memory");
  return r;
}

// Copies by the tensor unit: a box of a four-dimensional tensor into shared memory, rows of 128 bytes swizzled.
struct alignas(64) Map { u64 opaque[16]; };
DI void box(u32 to, const Map& map, int b, int chunk, int t, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2,%3,%4,%5}], [%6];"
    :: "r"(to), "l"(&map), "r"(0), "r"(b), "r"(chunk), "r"(t), "r"(barrier) : "memory");
}
DI void barrier_init_for(u32 a, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(a), "r"(count) : "memory"); }
DI void barrier_arrive(u32 a) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(a) : "memory"); }
DI void between_proxies() { asm volatile("fence.proxy.async;" ::: "memory"); }   // plain accesses before, the tensor unit's after
DI void shared_between_proxies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Some threads of a block wait for each other.
template<int PLACE> DI void meet(int threads) { asm volatile("bar.sync %0, %1;" :: "n"(PLACE), "r"(threads) : "memory"); }
DI u32 look(const u32* p) { u32 v; asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
DI void count_up(u32* p) { asm volatile("fence.acq_rel.gpu; red.relaxed.gpu.global.add.u32 [%0], 1;" :: "l"(p) : "memory"); }
// Products of a warpgroup (4 warps, 64 rows) with a matrix in shared memory; they run on while the threads do.
DI void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DI void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template<int LEFT> DI void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory"); }
// Where rows of 128 swizzled bytes begin, for the tensor cores: groups of 8 rows lie 1024 bytes apart.
DI u64 matrix_at(u32 address) { return ((u64)1 << 62) | ((u64)64 << 32) | ((u64)1 << 16) | ((address & 0x3FFFF) >> 4); }
DI void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
DI void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
