// What all kernels are given, and what a unit keeps, in 16 bits a number.
// T time, B batch, H width, G gates. A 16-bit y is [T+1, B, H] with the first state in front.
enum { FORWARD = 0, BACKWARD = 1 };
// Rows of 16-byte pieces are read without bank conflicts when they lie 64 bytes off a multiple of 128.
__device__ constexpr int row_bytes(int values) { return values*2 % 128 == 64 ? values*2 : values*2 + 64; }

struct Run {
  const u16* x;          // forward: [T, B, G, H], the input's share of the gates;  backward: dy [T, B, H]
  const u16* w;          // forward: U [G*H, H];  backward: its transpose [H, G*H]
  const float* b_u;      // GRU: the candidate's inner bias [H]
  const float* c0;       // LSTM: [B, H]
  const int* lengths;    // [B], or null where all rows are full
  u16* y;                // forward: written;  backward: read
  uint2* saved;          // [T, B, H]: four 16-bit values (LSTM i f g o, GRU r z n q); null: not kept
  float* cells;          // LSTM: [T, B, H], the cell after each step; null: not kept
  u16* exchange;         // backward: d(U h) [T, B, G, H]
  u16* candidate;        // backward, GRU: gradient of what enters the candidate [T, B, H]
  const float* dh;       // backward: of the last state [B, H]; null: 0
  const float* dc;       // backward: of the last cell [B, H]; null: 0
  float* h_out;          // forward: last state;  backward: gradient of the first that did not pass the product, or null
  float* c_out;          // forward: last cell;   backward: gradient of the first, or null
  u32* counters;         // wide kernels: [T, batch slices, parts], zero at first
  int* alarm;            // set to 1 where a wait outlasted its bound
  u64 patience;          // that bound, nanoseconds
  int T, B;
  int short_last;        // forward: the last state and cell are written in 16 bits
};

DI void leave(const Run& p, float* out, size_t at, float value) {
  if (p.short_last) reinterpret_cast<u16*>(out)[at] = narrow(value);
  else if (out) out[at] = value;
}

// A wait that ends: after `patience` the kernel runs on over what it has, and the alarm tells the host.
struct Watch {
  u64 since;
  u32 tries;
  bool expired;
  __device__ __forceinline__ bool gives_up(u64 patience) {
    if (expired) return true;
    if ((++tries & 255u) == 0) {
      const u64 now = nanoseconds();
      if (since == 0) since = now; else if (now - since > patience) expired = true;
    }
    return expired;
  }
  __device__ __forceinline__ void rest() { since = 0; tries = 0; }
};
DI void wait_for(u32 barrier, u32 parity) { while (!barrier_passed(barrier, parity)) {} }   // for threads that cannot fail to come
DI void wait_for(u32 barrier, u32 parity, Watch& watch, u64 patience) {
  while (!barrier_passed(barrier, parity)) if (watch.gives_up(patience)) break;
  watch.rest();
}

template<int CELL> DI float cell_forward(const float (&a)[gates_of(CELL)], const float (&x)[gates_of(CELL)], float b_u, float& h, float& c, uint2& saved) {
  float4 kept;
  cell_forward<CELL>(a, x, b_u, h, c, kept);
  if constexpr (CELL >= GRU) saved = make_uint2(pack(kept.x, kept.y), pack(kept.z, kept.w));
  return h;
}
template<int CELL> DI void cell_backward(uint2 saved, float c_after, float c_before, float h, float dh, float& dc, float& pass, float (&d)[gates_of(CELL)], float& extra) {
  float4 kept;
  if constexpr (CELL >= GRU) kept = make_float4(low(saved.x), high(saved.x), low(saved.y), high(saved.y));
  cell_backward<CELL>(kept, c_after, c_before, h, dh, dc, pass, d, extra);
}

// What the backward of one unit at one moment reads.
struct Operands { uint2 saved; float c; u16 h, dy; };
// Moments begin at addresses that all threads share, so that an element costs one addition. `at` counts units last:
// who has the first of a sector of 32 bytes asks for the one four moments before.
template<int CELL, int H> DI void fetch(Operands& o, const Run& p, int t, u32 at) {
  const size_t row = (size_t)p.B*H, now = (size_t)t*row;
  const u16 *x = p.x + now, *y = p.y + now + (CELL < GRU ? row : 0);       // the state before, in Elman's the state after
  const uint2* saved = p.saved + now;
  const float* c = t > 0 ? p.cells + (now - row) : p.c0;
  o.dy = x[at];
  if constexpr (CELL >= GRU) o.saved = saved[at];
  if constexpr (CELL == LSTM) o.c = c[at];
  if constexpr (CELL < LSTM) o.h = y[at];
  if (t >= 5) {
    if ((at & 15) == 0) prefetch(x - 4*row + at);
    if constexpr (CELL >= GRU) if ((at & 3) == 0) prefetch(saved - 4*row + at);
    if constexpr (CELL == LSTM) if ((at & 7) == 0) prefetch(c - 4*row + at);
    if constexpr (CELL < LSTM) if ((at & 15) == 0) prefetch(y - 4*row + at);
  }
}
