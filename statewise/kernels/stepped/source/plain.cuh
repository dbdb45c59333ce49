// One step after its product, a thread for N units of one row.
template<int CELL, int N, int NTH> DI void plain_forward(const Run* run, Place s, int k) {
  constexpr int G = gates_of(CELL);
  const int i = blockIdx.x*NTH + threadIdx.x, across = s.D/N;
  if (i >= s.rows*across) return;
  const int b = i/across, u = (i - b*across)*N, D = s.D;
  float a[G][N];
  #pragma unroll
  for (int g = 0; g < G; g++) read<N>(s.product + ((size_t)b*G + g)*s.P + u, a[g]);   // asked for before the run is known
  const int t = run->t + k, T = run->T, B = run->B;
  if (t >= T || b >= B) return;
  const int end = run->lengths ? run->lengths[b] : T;
  const size_t row = (size_t)t*B + b, at = (size_t)b*D + u, before = (row - B)*D + u;
  V* const y = run->y + (row + B)*D + u;
  if (t >= end) {
    const float nothing[N] = {};
    write<N>(y, nothing);
    return;
  }
  V* const gates = run->gates + row*G*D + u;
  float* const cells = run->cells;
  const bool last = t + 1 == end;
  float x[G][N], h[N], c[N] = {}, b_u[N] = {}, kept[4][N];
  #pragma unroll
  for (int g = 0; g < G; g++) read<N>(gates + (size_t)g*D, x[g]);
  if constexpr (CELL == GRU) read<N>(run->b_u + u, b_u);
  if constexpr (CELL == GRU) read<N>(run->h + at, h);
  if constexpr (CELL == LSTM) read<N>(cells && t > 0 ? cells + before : run->c + at, c);
  #pragma unroll
  for (int n = 0; n < N; n++) {
    float own_a[G], own_x[G];
    #pragma unroll
    for (int g = 0; g < G; g++) { own_a[g] = a[g][n]; own_x[g] = x[g][n]; }
    float4 four;
    cell_forward<CELL>(own_a, own_x, b_u[n], h[n], c[n], four);
    if constexpr (CELL >= GRU) { kept[0][n] = four.x; kept[1][n] = four.y; kept[2][n] = four.z; kept[3][n] = four.w; }
  }
  write<N>(y, h);
  write<N>(s.operand + (size_t)b*s.P + u, h);
  if (CELL == GRU || last) write<N>(run->h + at, h);
  if constexpr (CELL == LSTM) {
    if (cells) write<N>(cells + row*D + u, c);
    if (!cells || last) write<N>(run->c + at, c);
  }
  if constexpr (CELL >= GRU) {
    if (CELL == LSTM ? cells != nullptr : run->inner != nullptr) {
      #pragma unroll
      for (int g = 0; g < G; g++) write<N>(gates + (size_t)g*D, kept[g]);
      if constexpr (CELL == GRU) write<N>(run->inner + row*D + u, kept[3]);
    }
  }
}

// The product is d(U h) of the step after, times U; for the last step it is 0. BY_UNIT: `gates` is [T, B, D, 4], with the
// GRU's q as the fourth.
template<int CELL, int N, int NTH, bool BY_UNIT> DI void plain_backward(const Run* run, Place s, int k) {
  constexpr int G = gates_of(CELL);
  const int i = blockIdx.x*NTH + threadIdx.x, across = s.D/N;
  if (i >= s.rows*across) return;
  const int b = i/across, u = (i - b*across)*N, D = s.D;
  const int T = run->T, B = run->B, t = T - 1 - run->t - k;
  if (t < 0 || b >= B) return;
  const int end = run->lengths ? run->lengths[b] : T;
  const size_t row = (size_t)t*B + b, at = (size_t)b*D + u, before = (row - B)*D + u;
  V* const da = run->da + row*G*D + u;
  if (t >= end) {                                   // the operand is still 0 here
    const float nothing[N] = {};
    await_product();
    #pragma unroll
    for (int g = 0; g < G; g++) write<N>(da + (size_t)g*D, nothing);
    if constexpr (CELL == GRU) write<N>(run->du + row*D + u, nothing);
    return;
  }
  const bool last = t + 1 == end;
  float dh[N], dy[N], pass[N] = {}, h[N] = {}, after[N] = {}, c[N] = {}, dc[N] = {}, kept[4][N] = {}, d[G][N], extra[N] = {};
  read<N>(run->dy + row*D + u, dy);
  if constexpr (CELL >= GRU && BY_UNIT) {
    #pragma unroll
    for (int n = 0; n < N; n++) {
      float four[4];
      read<4>(run->gates + (row*D + u + n)*4, four);
      #pragma unroll
      for (int g = 0; g < 4; g++) kept[g][n] = four[g];
    }
  } else if constexpr (CELL >= GRU) {
    #pragma unroll
    for (int g = 0; g < G; g++) read<N>(run->gates + (row*G + g)*D + u, kept[g]);
  }
  if constexpr (CELL == GRU && !BY_UNIT) read<N>(run->inner + row*D + u, kept[3]);
  if constexpr (CELL == GRU) read<N>(run->y + row*D + u, h);
  if constexpr (CELL < GRU) read<N>(run->y + (row + B)*D + u, h);
  if constexpr (CELL == LSTM) {
    read<N>(run->cells + row*D + u, after);
    read<N>(t > 0 ? run->cells + before : run->c0 + at, c);
  }
  if constexpr (CELL == LSTM) read<N>(run->c + at, dc);
  if (CELL == GRU || last) read<N>(run->h + at, pass);
  await_product();
  read<N>(s.product + (size_t)b*s.P + u, dh);
  #pragma unroll
  for (int n = 0; n < N; n++) {
    float one[G];
    const float whole = dh[n] + pass[n] + dy[n];
    cell_backward<CELL>(make_float4(kept[0][n], kept[1][n], kept[2][n], kept[3][n]), after[n], c[n], h[n], whole, dc[n], pass[n], one, extra[n]);
    #pragma unroll
    for (int g = 0; g < G; g++) d[g][n] = one[g];
  }
  #pragma unroll
  for (int g = 0; g < G; g++) {
    write<N>(s.operand + ((size_t)b*G + g)*s.P + u, d[g]);
    write<N>(da + (size_t)g*D, CELL == GRU && g == 2 ? extra : d[g]);
  }
  if constexpr (CELL == GRU) write<N>(run->du + row*D + u, d[G - 1]);
  if constexpr (CELL == LSTM) write<N>(run->c + at, dc);
  if (CELL == GRU || last) write<N>(run->h + at, pass);
}
