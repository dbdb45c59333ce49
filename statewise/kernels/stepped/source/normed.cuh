// One step of the LSTM with layer norm after its product, a block for each row: U h and the cell are normalised over
// the whole row, so its threads meet twice.
constexpr float EPSILON = 1e-5f;   // torch.nn's
struct Three { float a, b, c; };

DI Three plus(Three x, Three y) { return {x.a + y.a, x.b + y.b, x.c + y.c}; }
// Count, mean and squared deviations of two heaps of numbers together (Chan, Golub and LeVeque 1979): nothing cancels.
DI Three together_with(Three x, Three y) {
  const float count = x.a + y.a, part = count > 0.f ? y.a/count : 0.f, shift = y.b - x.b;
  return {count, fmaf(shift, part, x.b), x.c + y.c + shift*shift*x.a*part};
}
DI float inverse_deviation(Three heap) { return 1.f/sqrtf(heap.c/heap.a + EPSILON); }

template<class F> DI Three over_warp(Three own, F join) {
  #pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1)
    own = join(own, Three{from_lane_xor(own.a, mask), from_lane_xor(own.b, mask), from_lane_xor(own.c, mask)});
  return own;
}
// Always in the same order, and the same bits for every thread.
template<int NTH, class F> DI Three over_block(Three own, Three* room, F join) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  own = over_warp(own, join);
  if (lane == 0) room[warp] = own;
  __syncthreads();
  if (warp == 0) {
    own = over_warp(lane < NTH/32 ? room[lane] : Three{0.f, 0.f, 0.f}, join);
    if (lane == 0) room[32] = own;
  }
  __syncthreads();
  return room[32];
}

template<int NTH> DI void normed_forward(const Run* run, Place s, int k, unsigned char* memory) {
  Three* const room = reinterpret_cast<Three*>(memory);
  const auto sum = [](Three x, Three y) { return together_with(x, y); };
  const int b = blockIdx.x, D = s.D, P = s.P;
  const V* const product = s.product + (size_t)b*4*P;
  Three heap = {0.f, 0.f, 0.f};
  for (int u = threadIdx.x; u < D; u += NTH)
    #pragma unroll
    for (int g = 0; g < 4; g++) heap = together_with(heap, Three{1.f, wide(product[g*P + u]), 0.f});
  heap = over_block<NTH>(heap, room, sum);
  const float mean = heap.b, inverse = inverse_deviation(heap);

  const int t = run->t + k, T = run->T, B = run->B;
  if (t >= T || b >= B) return;
  const int end = run->lengths ? run->lengths[b] : T;
  const size_t row = (size_t)t*B + b, at = (size_t)b*D;
  V* const y = run->y + (row + B)*D;
  if (t >= end) {
    for (int u = threadIdx.x; u < D; u += NTH) put(y[u], 0.f);
    return;
  }
  V* const gates = run->gates + row*4*D;
  const float* const gain = run->gain;
  const bool keep = run->inner != nullptr, last = t + 1 == end;
  const float* const c_before = keep && t > 0 ? run->cells + (row - B)*D : run->c + at;
  float* const c_after = keep ? run->cells + row*D : run->c + at;
  auto gate = [&](int g, int u) { return wide(gates[g*D + u]) + (wide(product[g*P + u]) - mean)*inverse*gain[g*D + u]; };
  heap = {0.f, 0.f, 0.f};
  for (int u = threadIdx.x; u < D; u += NTH) {
    const float i = sigmoid_of(gate(0, u)), f = sigmoid_of(gate(1, u)), g = tanh_of(gate(2, u));
    const float c = fmaf(f, c_before[u], i*g);
    c_after[u] = c;
    heap = together_with(heap, Three{1.f, c, 0.f});
    if (keep) { put(gates[u], i); put(gates[D + u], f); put(gates[2*D + u], g); }
  }
  heap = over_block<NTH>(heap, room, sum);
  const float cell_mean = heap.b, cell_inverse = inverse_deviation(heap);
  for (int u = threadIdx.x; u < D; u += NTH) {
    const float o = sigmoid_of(gate(3, u)), c = c_after[u];
    const float h = o*tanh_of(fmaf((c - cell_mean)*cell_inverse, run->cell_gain[u], run->cell_bias[u]));
    put(y[u], h);
    put(s.operand[(size_t)b*P + u], h);
    if (last) { run->h[at + u] = h; run->c[at + u] = c; }
    if (keep) {
      put(gates[3*D + u], o);
      #pragma unroll
      for (int g = 0; g < 4; g++) run->inner[(row*4 + g)*D + u] = product[g*P + u];
    }
  }
  if (keep && threadIdx.x == 0) run->spread[row] = make_float4(mean, inverse, cell_mean, cell_inverse);
}

template<int NTH> DI void normed_backward(const Run* run, Place s, int k, unsigned char* memory) {
  Three* const room = reinterpret_cast<Three*>(memory);
  const auto sum = [](Three x, Three y) { return plus(x, y); };
  const int b = blockIdx.x, D = s.D, P = s.P;
  const V* const product = s.product + (size_t)b*P;
  const int T = run->T, B = run->B, t = T - 1 - run->t - k;
  if (t < 0 || b >= B) return;
  const int end = run->lengths ? run->lengths[b] : T;
  await_product();
  const size_t row = (size_t)t*B + b, at = (size_t)b*D;
  V *const da = run->da + row*4*D, *const du = run->du + row*4*D;
  if (t >= end) {                                   // the operand is still 0 here
    for (int u = threadIdx.x; u < 4*D; u += NTH) { put(da[u], 0.f); put(du[u], 0.f); }
    return;
  }
  const bool last = t + 1 == end;
  const float4 spread = run->spread[row];
  const V *const gates = run->gates + row*4*D, *const inner = run->inner + row*4*D, *const dy = run->dy + row*D;
  const float *const cells = run->cells + row*D, *const c_before = t > 0 ? run->cells + (row - B)*D : run->c0 + at;
  float *const pass = run->h + at, *const cell_sum = run->cell_sum + 2*at, *const gain_sum = run->gain_sum + 4*at;
  // Of a unit: its whole gradient, what it shows, the normalised cell, and the gradient that reaches that through tanh.
  struct Shown { float dh, shown, normal, d; };
  auto show = [&](int u) {
    const float dh = wide(product[u]) + (last ? pass[u] : 0.f) + wide(dy[u]);
    const float normal = (cells[u] - spread.z)*spread.w, shown = tanh_of(fmaf(normal, run->cell_gain[u], run->cell_bias[u]));
    return Shown{dh, shown, normal, dh*wide(gates[3*D + u])*(1.f - shown*shown)};
  };
  Three heap = {0.f, 0.f, 0.f};
  for (int u = threadIdx.x; u < D; u += NTH) {
    const Shown v = show(u);
    const float d = v.d*run->cell_gain[u];
    heap.a += d;
    heap.b += d*v.normal;
    cell_sum[u] += v.d*v.normal;
    cell_sum[D + u] += v.d;
  }
  heap = over_block<NTH>(heap, room, sum);
  const float level = heap.a/D, slope = heap.b/D;
  heap = {0.f, 0.f, 0.f};
  for (int u = threadIdx.x; u < D; u += NTH) {
    const Shown v = show(u);
    const float4 kept = make_float4(wide(gates[u]), wide(gates[D + u]), wide(gates[2*D + u]), wide(gates[3*D + u]));
    float dc = run->c[at + u] + spread.w*(v.d*run->cell_gain[u] - level - v.normal*slope), d[4];
    lstm_backward(kept, v.shown, c_before[u], v.dh, dc, d);
    run->c[at + u] = dc;
    if (last) pass[u] = 0.f;
    #pragma unroll
    for (int g = 0; g < 4; g++) {
      const float normal = (wide(inner[g*D + u]) - spread.x)*spread.y, through = d[g]*run->gain[g*D + u];
      put(da[g*D + u], d[g]);
      gain_sum[g*D + u] += d[g]*normal;
      heap.a += through;
      heap.b += through*normal;
    }
  }
  heap = over_block<NTH>(heap, room, sum);
  const float all_level = heap.a/(4*D), all_slope = heap.b/(4*D);
  for (int u = threadIdx.x; u < D; u += NTH)
    #pragma unroll
    for (int g = 0; g < 4; g++) {
      const float normal = (wide(inner[g*D + u]) - spread.x)*spread.y;
      const float d = spread.y*(wide(da[g*D + u])*run->gain[g*D + u] - all_level - normal*all_slope);
      put(du[g*D + u], d);
      put(s.operand[((size_t)b*4 + g)*P + u], d);
    }
}
