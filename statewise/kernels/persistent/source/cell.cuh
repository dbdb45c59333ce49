// The cells, one unit at a time, forward and backward, and what all kernels are given.
// T time, B batch, H width, G gates. A 16-bit y is [T+1, B, H] with the first state in front.
enum { TANH = 0, RELU = 1, GRU = 2, LSTM = 3 };
enum { FORWARD = 0, BACKWARD = 1 };
__device__ constexpr int gates_of(int cell) { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }
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
  const float* dh;       // backward: of the last state [B, H]
  const float* dc;       // backward: of the last cell [B, H]
  float* h_out;          // forward: last state;  backward: gradient of the first that did not pass the product
  float* c_out;          // forward: last cell;   backward: gradient of the first
  u32* counters;         // wide kernels: [T, batch slices], zero at first
  int* alarm;            // set to 1 where a wait outlasted its bound
  u64 patience;          // that bound, nanoseconds
  int T, B;
};

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
DI void wait_for(u32 barrier, u32 parity, Watch& watch, u64 patience) {
  while (!barrier_passed(barrier, parity)) if (watch.gives_up(patience)) break;
  watch.rest();
}

// What the owner of a unit carries along: h (GRU needs it unrounded), and the cell.
template<int CELL> DI float cell_forward(const float (&a)[gates_of(CELL)], const float (&x)[gates_of(CELL)], float b_u, float& h, float& c, uint2& saved) {
  if constexpr (CELL == LSTM) {
    const float i = sigmoid_of(a[0]+x[0]), f = sigmoid_of(a[1]+x[1]), g = tanh_of(a[2]+x[2]), o = sigmoid_of(a[3]+x[3]);
    c = fmaf(f, c, i*g);
    saved = make_uint2(pack(i, f), pack(g, o));
    h = o*tanh_of(c);
  } else if constexpr (CELL == GRU) {
    const float r = sigmoid_of(a[0]+x[0]), z = sigmoid_of(a[1]+x[1]), q = a[2] + b_u, n = tanh_of(fmaf(r, q, x[2]));
    saved = make_uint2(pack(r, z), pack(n, q));
    h = fmaf(z, h - n, n);
  } else {
    const float s = a[0] + x[0];
    h = CELL == TANH ? tanh_of(s) : s < 0.f ? 0.f : s;   // written so that a NaN stays one
  }
  return h;
}

// d: into U h.  pass: what reaches the state before without the product.  extra: into the GRU's candidate.
template<int CELL> DI void cell_backward(uint2 saved, float c_after, float c_before, float h, float dh, float& dc, float& pass, float (&d)[gates_of(CELL)], float& extra) {
  if constexpr (CELL == LSTM) {
    const float i = low(saved.x), f = high(saved.x), g = low(saved.y), o = high(saved.y), shown = tanh_of(c_after);
    dc = fmaf(dh*o, 1.f - shown*shown, dc);
    d[0] = dc*g*i*(1.f-i);
    d[1] = dc*c_before*f*(1.f-f);
    d[2] = dc*i*(1.f-g*g);
    d[3] = dh*shown*o*(1.f-o);
    dc *= f;
    pass = 0.f;
  } else if constexpr (CELL == GRU) {
    const float r = low(saved.x), z = high(saved.x), n = low(saved.y), q = high(saved.y);
    extra = dh*(1.f-z)*(1.f-n*n);
    d[0] = extra*q*r*(1.f-r);
    d[1] = dh*(h-n)*z*(1.f-z);
    d[2] = extra*r;
    pass = dh*z;
  } else {
    d[0] = CELL == TANH ? dh*(1.f-h*h) : h > 0.f ? dh : 0.f;
    pass = 0.f;
  }
}

// What the backward of one unit at one moment reads.
struct Operands { uint2 saved; float c; u16 h, dy; };
template<int CELL, int H> DI void fetch(Operands& o, const Run& p, int t, u32 at) {
  const size_t row = (size_t)p.B*H, i = (size_t)t*row + at;
  o.dy = p.x[i];
  if constexpr (CELL >= GRU) o.saved = p.saved[i];
  if constexpr (CELL == LSTM) o.c = t > 0 ? p.cells[i - row] : p.c0[at];
  if constexpr (CELL == GRU) o.h = p.y[i];            // the state before
  if constexpr (CELL < GRU) o.h = p.y[i + row];       // the state after
  if (t >= 4) {
    prefetch(p.x + i - 4*row);
    if constexpr (CELL >= GRU) prefetch(p.saved + i - 4*row);
    if constexpr (CELL == LSTM) if (t >= 5) prefetch(p.cells + i - 5*row);
    if constexpr (CELL < LSTM) prefetch(p.y + i - 4*row);
  }
}
