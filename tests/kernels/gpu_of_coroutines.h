// A GPU of coroutines: every CUDA thread is one, and gives way at each instruction that waits for others.
#include <ucontext.h>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <vector>
#include <algorithm>
using std::min;
#define __device__
#define __global__
#define __forceinline__ inline
#define DI static inline
typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
struct uint2 { u32 x, y; }; struct uint4 { u32 x, y, z, w; }; struct float2 { float x, y; }; struct float4 { float x, y, z, w; };
inline uint2 make_uint2(u32 x, u32 y) { return {x, y}; }
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __uint_as_float(u32 v) { float f; memcpy(&f, &v, 4); return f; }
inline u32 bits(float f) { u32 v; memcpy(&v, &f, 4); return v; }
struct Dim { unsigned x, y; };
struct Barrier { int count = 1, pending = 1; long tx = 0; u32 phase = 0; };
struct Meeting { int met = 0; u32 generation = 0; };
struct Cluster;
struct Block { std::vector<unsigned char> memory; std::map<u32, Barrier> barriers; std::map<int, Meeting> places; int arrived = 0; u32 generation = 0; Dim index; int rank; Cluster* cluster; };
struct Cluster { std::vector<Block*> blocks; int arrived = 0; u32 generation = 0; };
struct Warp { int arrived = 0; u32 generation = 0; u32 a[32][4], b[32][2]; float c[32][4]; float f[32]; bool v[32]; bool any; };
struct Fiber { ucontext_t context; char* stack; Block* block; Warp* warp; int thread; bool done = false; };
static Fiber* self; static ucontext_t scheduler;
static int THREADS; static Dim GRID;
#define threadIdx (Dim{(unsigned)self->thread, 0})
#define blockIdx (self->block->index)
#define gridDim GRID
#define CLUSTERS 1
inline void give_way() { Fiber* f = self; swapcontext(&f->context, &scheduler); self = f; }
template<class F> inline void together(F last) {     // all 32 lanes meet; the last one acts for all
  Warp* w = self->warp; u32 g = w->generation;
  if (++w->arrived == 32) { last(w); w->arrived = 0; w->generation++; } else while (w->generation == g) give_way();
}
inline void __syncthreads() { Block* b = self->block; u32 g = b->generation; if (++b->arrived == THREADS) { b->arrived = 0; b->generation++; } else while (b->generation == g) give_way(); }
inline void cluster_sync() { Cluster* c = self->block->cluster; u32 g = c->generation; if (++c->arrived == THREADS*(int)c->blocks.size()) { c->arrived = 0; c->generation++; } else while (c->generation == g) give_way(); }
inline float tanh_of(float x) { return std::tanh(x); }
inline float sigmoid_of(float x) { return 1.f/(1.f + std::exp(-x)); }
inline float widen(u16 v) { return __uint_as_float((u32)v << 16); }
inline float low(u32 v) { return __uint_as_float(v << 16); }
inline float high(u32 v) { return __uint_as_float(v & 0xFFFF0000u); }
inline u16 narrow(float f) { u32 v = bits(f); if (f != f) return 0x7FFF; return (u16)((v + 0x7FFF + ((v >> 16) & 1)) >> 16); }
inline u32 pack(float a, float b) { return narrow(a) | ((u32)narrow(b) << 16); }
inline float half_of(const u32* w, int i) { return i & 1 ? high(w[i >> 1]) : low(w[i >> 1]); }
inline void mma(float (&c)[4], const uint4& a, u32 b0, u32 b1) {
  Warp* w = self->warp; int lane = self->thread & 31;
  w->a[lane][0] = a.x; w->a[lane][1] = a.y; w->a[lane][2] = a.z; w->a[lane][3] = a.w; w->b[lane][0] = b0; w->b[lane][1] = b1;
  memcpy(w->c[lane], c, 16);
  together([](Warp* w) {
    float A[16][16], Bm[16][8];
    for (int l = 0; l < 32; l++) { int g = l >> 2, q = l & 3;
      for (int i = 0; i < 2; i++) {
        A[g][2*q+i] = half_of(&w->a[l][0], i); A[g+8][2*q+i] = half_of(&w->a[l][1], i); A[g][2*q+8+i] = half_of(&w->a[l][2], i); A[g+8][2*q+8+i] = half_of(&w->a[l][3], i);
        Bm[2*q+i][g] = half_of(&w->b[l][0], i); Bm[2*q+8+i][g] = half_of(&w->b[l][1], i); } }
    for (int l = 0; l < 32; l++) { int g = l >> 2, q = l & 3;
      for (int e = 0; e < 4; e++) { int r = g + 8*(e >> 1), n = 2*q + (e & 1); float s = w->c[l][e]; for (int k = 0; k < 16; k++) s += A[r][k]*Bm[k][n]; w->c[l][e] = s; } }
  });
  memcpy(c, w->c[lane], 16);
  together([](Warp*) {});
}
inline float from_lane_xor(float v, int mask) {
  Warp* w = self->warp; int lane = self->thread & 31; w->f[lane] = v;
  together([](Warp*) {}); float r = w->f[lane ^ mask]; together([](Warp*) {}); return r; }
inline bool any_lane(bool v) { Warp* w = self->warp; w->v[self->thread & 31] = v; together([](Warp* w) { w->any = false; for (bool b : w->v) w->any |= b; }); bool r = w->any; together([](Warp*) {}); return r; }
inline uint4 ask(const void* p) { uint4 v; memcpy(&v, p, 16); return v; }
inline void ask_again(uint4& v, const void* p, bool missing) { if (missing) v = ask(p); }
inline bool absent(const uint4& v) { return v.x == ~0u || v.y == ~0u || v.z == ~0u || v.w == ~0u; }
inline void publish(void* p, u32 v) { memcpy(p, &v, 4); }
inline void prefetch(const void* p) { volatile char c = *(const char*)p; (void)c; }
inline u64 nanoseconds() { static u64 t = 1; return t += 1; }
inline u32 shared_address(const void* p) { return ((u32)self->block->rank << 20) | (u32)((const unsigned char*)p - self->block->memory.data()); }
inline u32 in_block(u32 a, u32 rank) { return (a & 0xFFFFF) | (rank << 20); }
inline u32 cluster_rank() { return self->block->rank; }
inline Block* owner(u32 a) { return self->block->cluster->blocks.at(a >> 20); }
inline void settle(Barrier& b) { if (b.pending == 0 && b.tx == 0) { b.phase++; b.pending = b.count; } }
inline void arrive_bytes(u32 barrier, long n) { Barrier& b = owner(barrier)->barriers.at(barrier & 0xFFFFF); b.tx -= n; settle(b); }
template<class V> inline void send(u32 a, V v, u32 barrier) {
  Block* o = owner(a); if ((a & 0xFFFFF) + sizeof v > o->memory.size() || (a % sizeof v)) { fprintf(stderr, "send outside\n"); abort(); }
  memcpy(o->memory.data() + (a & 0xFFFFF), &v, sizeof v); arrive_bytes(barrier, sizeof v); }
inline void barrier_init(u32 a) { self->block->barriers[a & 0xFFFFF] = Barrier(); }
inline void barrier_init_done() {}
inline void barrier_expect(u32 a, u32 n) { Barrier& b = owner(a)->barriers.at(a & 0xFFFFF); b.pending--; b.tx += n; settle(b); }
inline bool barrier_passed(u32 a, u32 parity) { bool r = (owner(a)->barriers.at(a & 0xFFFFF).phase & 1) != parity; if (!r) give_way(); return r; }
// The tensor unit: rows of 128 bytes, their 16-byte pieces swapped by the row.
struct alignas(64) Map { u64 opaque[16]; };        // here: address, extents of k, b and t, rows and chunks of a box
inline void barrier_init_for(u32 a, u32 count) { Barrier b; b.count = b.pending = count; self->block->barriers[a & 0xFFFFF] = b; }
inline void barrier_arrive(u32 a) { Barrier& b = owner(a)->barriers.at(a & 0xFFFFF); b.pending--; settle(b); }
inline void box(u32 to, const Map& m, int b, int chunk, int t, u32 barrier) {
  const u16* data = (const u16*)m.opaque[0]; const long K = m.opaque[1], B = m.opaque[2], T = m.opaque[3], N = m.opaque[4], Q = m.opaque[5];
  if (t < 0 || t >= T || chunk < 0 || (chunk + Q)*64 > K || (to & 1023)) { fprintf(stderr, "box outside\n"); abort(); }
  for (long q = 0; q < Q; q++) for (long n = 0; n < N; n++) for (int piece = 0; piece < 8; piece++) {
    uint4 v = {0, 0, 0, 0}; if (b + n < B) memcpy(&v, data + ((long)t*B + b + n)*K + (chunk + q)*64 + piece*8, 16);
    memcpy(self->block->memory.data() + (to & 0xFFFFF) + (q*N + n)*128 + ((piece ^ (n & 7)) << 4), &v, 16); }
  arrive_bytes(barrier, Q*N*128); }
inline void between_proxies() {}
inline void shared_between_proxies() {}
inline bool came_to(Meeting& p, int threads) { if (++p.met < threads) return false; p.met = 0; p.generation++; return true; }
template<int PLACE> inline void meet(int threads) { Meeting& p = self->block->places[PLACE]; u32 g = p.generation; if (!came_to(p, threads)) while (p.generation == g) give_way(); }
inline u32 look(const u32* p) { give_way(); return *p; }
inline void count_up(u32* p) { ++*p; }
inline void registers_down() {}
inline void registers_up() {}
inline void products_begin() {}
inline void products_commit() {}
template<int LEFT> inline void products_wait() { together([](Warp*) {}); }   // the instruction is one of the whole warp
inline u64 matrix_at(u32 address) { return (address & 0xFFFFF) >> 4; }
inline float swizzled(u64 at, int row, int k) {    // a value of a tile that begins at a multiple of 1024 bytes
  long start = (long)(at << 4), tile = start & ~1023L, byte = (start & 127) + 2*k; u16 v;
  memcpy(&v, self->block->memory.data() + tile + row*128 + (((byte >> 4) ^ (row & 7)) << 4) + (byte & 15), 2); return widen(v); }
template<int HALF_N> inline void product_of(float (&d)[HALF_N], const float (&A)[16][16], u64 b) {
  int lane = self->thread & 31, g = lane >> 2, q = lane & 3;
  for (int i = 0; i < HALF_N; i++) { int r = g + 8*((i >> 1) & 1), n = (i >> 2)*8 + 2*q + (i & 1); for (int k = 0; k < 16; k++) d[i] += A[r][k]*swizzled(b, n, k); } }
template<int HALF_N> inline void product(float (&d)[HALF_N], u64 a, u64 b) {
  float A[16][16]; int first = ((self->thread >> 5) & 3)*16;
  for (int r = 0; r < 16; r++) for (int k = 0; k < 16; k++) A[r][k] = swizzled(a, first + r, k);
  product_of(d, A, b); }
template<int HALF_N> inline void product(float (&d)[HALF_N], const uint4& a, u64 b) {
  Warp* w = self->warp; int lane = self->thread & 31; w->a[lane][0] = a.x; w->a[lane][1] = a.y; w->a[lane][2] = a.z; w->a[lane][3] = a.w;
  together([](Warp*) {});
  float A[16][16];
  for (int l = 0; l < 32; l++) { int g = l >> 2, q = l & 3; for (int i = 0; i < 2; i++) {
    A[g][2*q+i] = half_of(&w->a[l][0], i); A[g+8][2*q+i] = half_of(&w->a[l][1], i); A[g][2*q+8+i] = half_of(&w->a[l][2], i); A[g+8][2*q+8+i] = half_of(&w->a[l][3], i); } }
  together([](Warp*) {});
  product_of(d, A, b); }
static std::function<void(unsigned char*)> body;
static void enter() { body(self->block->memory.data()); self->done = true; swapcontext(&self->context, &scheduler); }
// Runs a grid; the order in which threads get their turn is drawn anew each round.
static void launch(unsigned gx, unsigned gy, int C, int threads, size_t memory, unsigned seed, std::function<void(unsigned char*)> kernel) {
  body = kernel; THREADS = threads; GRID = {gx, gy};
  std::vector<Block> blocks(gx*gy); std::vector<Cluster> clusters(gx*gy/C); std::vector<Warp> warps(gx*gy*threads/32); std::vector<Fiber> fibers(gx*gy*threads);
  for (unsigned i = 0; i < gx*gy; i++) { Block& b = blocks[i]; b.memory.assign(memory, 0xFF); b.index = {i % gx, i/gx}; b.rank = (i % gx) % C; b.cluster = &clusters[i/C]; b.cluster->blocks.push_back(&b);
    for (int t = 0; t < threads; t++) { Fiber& f = fibers[i*threads + t]; f.block = &b; f.thread = t; f.warp = &warps[(i*threads + t)/32]; f.stack = (char*)malloc(1 << 16);
      getcontext(&f.context); f.context.uc_stack.ss_sp = f.stack; f.context.uc_stack.ss_size = 1 << 16; f.context.uc_link = nullptr; makecontext(&f.context, enter, 0); } }
  std::mt19937 random(seed); std::vector<Fiber*> order; for (auto& f : fibers) order.push_back(&f);
  while (!order.empty()) {
    if (seed) std::shuffle(order.begin(), order.end(), random);
    for (Fiber* f : order) { self = f; swapcontext(&scheduler, &f->context); }
    order.erase(std::remove_if(order.begin(), order.end(), [](Fiber* f) { if (f->done) free(f->stack); return f->done; }), order.end());
  }
}
