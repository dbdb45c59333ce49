// Forward or backward for many rows, by the tensor cores' warpgroup products: a cluster of C blocks owns HSC units of
// N batch rows, each block 128 matrix rows of a slice of k. Two warpgroups hold their weights in registers (the first
// KRC chunks of 64 along k) and in shared memory. Of a third, one thread brings the other operand there, Q chunks at a
// time, and three warps carry results away, so that nobody who multiplies waits until they have arrived.
//
// Other clusters' values come through global memory; a counter for every moment and batch slice says when all of them
// are there. All blocks must be on the chip at once: the launch is cooperative.
//
// Whoever waits for other blocks may give up, and then nobody of the block asks them for anything again. What happens
// inside it goes on by the rules: a block must not end while a copy into its memory is under way.
//
// A block may take its rows in P parts of N, one after the other: while the values of one part are on their way from
// block to block, the next is multiplied.
template<int CELL, int WAY, int H, int C, int N, int S, int Q, int KRC, int P>
DI void wide(const Run& p, const Map& map, unsigned char* memory) {
  constexpr int G = gates_of(CELL), K = WAY == FORWARD ? H : G*H, KC = K/C, KCH = KC/64, OUT = WAY == FORWARD ? 1 : G;
  constexpr bool MIXED = WAY == FORWARD && G > 1;          // a tile of 16 rows is 4 units by 4 gates, else 16 units
  constexpr int TU = MIXED ? 4 : 16, E = MIXED ? 1 : 4, HSC = 8*TU, UO = HSC/C, TO = 8/C, NN = N/8;
  constexpr int LOOPS = (TO*NN + 7)/8;                     // (tile, 8 rows) that one warp takes after the product
  enum { ALL_MULTIPLIED = 1, ALL_CARRIED };                // where threads meet
  constexpr int MULTIPLY = 256, CARRY = 96;                // how many of them
  // In a cluster, the results of an only part lie where the other operand lay: the warps meet after their products, and
  // nothing is fetched before all blocks have counted. Else they have a place apart, and no warp waits for another.
  constexpr bool OVER = C > 1 && P == 1;
  constexpr int OUT_ROW = OUT*UO*2 + 16, OUT_BYTES = (N*OUT_ROW + 1023)/1024*1024, SLOT_BYTES = C > 1 ? 8*NN*32*16 : 0;
  constexpr int AT_SLOTS = 1024, AT_STAGES = AT_SLOTS + P*SLOT_BYTES, AT_REST = AT_STAGES + S*Q*N*128;
  constexpr int AT_OUT = OVER ? AT_STAGES : AT_REST + 2*(KCH - KRC)*8192;
  static_assert(C <= 8 && KCH*64*C == K && H % HSC == 0 && N % 8 == 0 && UO % 8 == 0 && KRC <= KCH && SLOT_BYTES % 1024 == 0 && KCH % Q == 0 && 16*S + 8*P + 16 <= 1020 && (!OVER || OUT_BYTES <= S*Q*N*128), "shape");
  const u32 base = shared_address(memory), full = base, empty = base + 8*S, slots_ready = base + 16*S;   // [S], [S], [P]
  const u32 there = slots_ready + 8*P, gone = there + 8;                  // results: every thread arrives for itself, so that a checker of races can follow
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, gid = lane >> 2, q = lane & 3, group = warp >> 2;
  const int rank = C > 1 ? (int)cluster_rank() : 0, u0 = (int)(blockIdx.x/C)*HSC, own0 = u0 + rank*UO, b0 = (int)blockIdx.y*P*N;
  const int T = p.T, B = p.B;
  u32* counters = p.counters + blockIdx.y*P;                               // [T][batch slices][parts]
  const u32 slices = gridDim.y*P;
  constexpr u32 BLOCKS = H/HSC*C;                                         // that count
  volatile u32* gave_up = reinterpret_cast<volatile u32*>(memory + 1020);

  if (tid == 0) {
    for (int i = 0; i < S; i++) { barrier_init_for(full + 8*i, 1); barrier_init_for(empty + 8*i, 8); }
    for (int i = 0; i < P; i++) barrier_init_for(slots_ready + 8*i, 1);
    barrier_init_for(there, MULTIPLY);
    barrier_init_for(gone, CARRY);
    barrier_init_done();
    *gave_up = 0;
  }
  // Matrix row r of this block: gate and unit, mixed as said above; the GRU's fourth gate is zero.
  auto weight_row = [&](int r) -> const u16* {
    if (!MIXED) return p.w + (size_t)(u0 + r)*K + rank*KC;
    const int in = r & 15, g = (in >> 3)*2 + ((in >> 2) & 1), u = u0 + (r >> 4)*4 + (in & 3);
    return g < G ? p.w + ((size_t)g*H + u)*K + rank*KC : nullptr;
  };
  for (int i = tid; i < 128*(KCH - KRC)*8; i += 384) {
    const int piece = i & 7, r = (i >> 3) & 127, chunk = i >> 10;
    const u16* row = weight_row(r);
    const uint4 v = row ? *reinterpret_cast<const uint4*>(row + (KRC + chunk)*64 + piece*8) : make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4*>(memory + AT_REST + ((chunk*2 + (r >> 6))*64 + (r & 63))*128 + ((piece ^ (r & 7)) << 4)) = v;
  }
  between_proxies();
  __syncthreads();
  if (C > 1) cluster_sync();

  if (warp >= 8) {
    // Who does not multiply leaves registers to the others. One thread fetches, the moment all blocks have counted.
    registers_down();
    if (tid == 256) {
      Watch watch = {0, 0, false};
      int turn = 0;
      for (int at = WAY == FORWARD ? 0 : P; at < T*P; at++) {
        const int step = at/P, part = at % P, t = WAY == FORWARD ? step : T - step;   // in the tensor that is read
        if (step > 0) {
          const u32* counter = counters + (size_t)(step - 1)*slices + part;
          while (!*gave_up && look(counter) < BLOCKS) if (watch.gives_up(p.patience)) *gave_up = 1;
          watch.rest();
          between_proxies();
        }
        for (int chunk = 0; chunk < KCH; chunk += Q, turn++) {
          const int slot = turn % S;
          if (turn >= S) wait_for(empty + 8*slot, (turn/S - 1) & 1);
          barrier_expect(full + 8*slot, Q*N*128);
          box(base + AT_STAGES + slot*Q*N*128, map, b0 + part*N, rank*KCH + chunk, t, full + 8*slot);
        }
      }
      if (*gave_up) *p.alarm = 1;
    } else if (warp > 8) {
      for (int at = 0; at < T*P; at++) {
        const int step = at/P, part = at % P, row0 = b0 + part*N, t = WAY == FORWARD ? step : T - 1 - step;
        u16* to = WAY == FORWARD ? p.y + (size_t)(t + 1)*B*H : p.exchange + (size_t)t*B*K;
        wait_for(there, at & 1);
        for (int i = tid - 288; i < N*OUT*(UO/8); i += CARRY) {
          const int k8 = i % (UO/8), g = i/(UO/8) % OUT, n = i/(UO/8*OUT);
          if (row0 + n < B) *reinterpret_cast<uint4*>(to + (size_t)(row0 + n)*(OUT*H) + g*H + own0 + k8*8) = *reinterpret_cast<const uint4*>(memory + AT_OUT + n*OUT_ROW + (g*UO + k8*8)*2);
        }
        barrier_arrive(gone);
        between_proxies();
        meet<ALL_CARRIED>(CARRY);
        if (tid == 288 && step + 1 < T) count_up(counters + (size_t)step*slices + part);
      }
    }
  } else {
    registers_up();
    uint4 held[KRC > 0 ? KRC*4 : 1];
    {
      const u16 *r0 = weight_row(warp*16 + gid), *r1 = weight_row(warp*16 + gid + 8);
      #pragma unroll
      for (int ks = 0; ks < KRC*4; ks++) {
        const int k = ks*16 + 2*q;
        held[ks] = make_uint4(r0 ? *reinterpret_cast<const u32*>(r0 + k) : 0, r1 ? *reinterpret_cast<const u32*>(r1 + k) : 0,
                              r0 ? *reinterpret_cast<const u32*>(r0 + k + 8) : 0, r1 ? *reinterpret_cast<const u32*>(r1 + k + 8) : 0);
      }
    }
    // Item l of a warp: a tile of units and 8 batch rows. Without a cluster it is the warp's own tile.
    auto tile_of = [&](int l) { return C == 1 ? warp : (warp + l*8)/NN; };
    auto eight_of = [&](int l) { return C == 1 ? l : (warp + l*8) % NN; };
    auto unit = [&](int l, int e) { return tile_of(l)*TU + (MIXED ? gid & 3 : gid + 8*(e >> 1)); };
    auto column = [&](int l, int e) { return eight_of(l)*8 + 2*q + (MIXED ? gid >> 2 : e & 1); };
    auto here = [&](int l) { return C == 1 ? l < NN : warp + l*8 < TO*NN; };
    constexpr int ITEMS = C == 1 ? NN : LOOPS;
    // What a step reads beside the product is asked for before it, where registers are left for that.
    constexpr bool EARLY = C == 1 || 16*KRC + N/2 + ITEMS*E*(2*P + (WAY == FORWARD ? (G + 1)/2 : 5)) <= 176;
    float hs[P][ITEMS][E], cs[P][ITEMS][E];                                // backward: what passes by, and dc
    float (&h)[ITEMS][E] = hs[0], (&c)[ITEMS][E] = cs[0];                  // of the part whose turn it is
    #pragma unroll
    for (int part = 0; part < P; part++)
      #pragma unroll
      for (int l = 0; l < ITEMS; l++)
        #pragma unroll
        for (int e = 0; e < E; e++) {
          float &first_h = hs[part][l][e], &first_c = cs[part][l][e];
          first_h = first_c = 0.f;
          if (here(l)) {
            const u32 at = (u32)min(b0 + part*N + column(l, e), B - 1)*H + own0 + unit(l, e);
            if constexpr (WAY == FORWARD) { first_h = widen(p.y[at]); if (CELL == LSTM) first_c = p.c0[at]; }
            else { if (p.dh) first_h = p.dh[at]; if (CELL == LSTM && p.dc) first_c = p.dc[at]; }
          }
        }
    Watch watch = {0, 0, false};
    int turn = 0;
    #pragma unroll 1
    for (int at = 0; at < T*P; at++) {
      const int step = at/P, part = at % P, row0 = b0 + part*N;
      const int t = WAY == FORWARD ? step : T - 1 - step, x = WAY == FORWARD ? step : step - 1;
      u16 input[WAY == FORWARD ? ITEMS : 1][E][G];
      Operands operands[WAY == FORWARD ? 1 : ITEMS][E];
      auto read_operands = [&]() {
        #pragma unroll
        for (int l = 0; l < ITEMS; l++)
          if (here(l)) {
            #pragma unroll
            for (int e = 0; e < E; e++) {
              const int b = min(row0 + column(l, e), B - 1), u = own0 + unit(l, e);
              if constexpr (WAY == FORWARD) {
                const u16* row = p.x + ((size_t)t*B + b)*(G*H) + u;
                #pragma unroll
                for (int g = 0; g < G; g++) {
                  input[l][e][g] = row[g*H];
                  if ((u & 15) == 0 && t + 2 < T) prefetch(row + (size_t)2*B*G*H + g*H);
                }
              } else fetch<CELL, H>(operands[l][e], p, t, (u32)b*H + u);
            }
          }
      };
      if (EARLY) read_operands();
      float sum[N/2];
      if (x >= 0) {
        #pragma unroll
        for (int i = 0; i < N/2; i++) sum[i] = 0.f;
        #pragma unroll
        for (int first = 0; first < KCH; first += Q, turn++) {
          const int slot = turn % S;
          wait_for(full + 8*slot, (turn/S) & 1);
          products_begin();
          #pragma unroll
          for (int i = 0; i < 4*Q; i++) {
            const int ks = i % 4, chunk = first + i/4;
            const u64 b = matrix_at(base + AT_STAGES + (slot*Q + i/4)*N*128) + 2*ks;
            if (chunk < KRC) product(sum, held[chunk < KRC ? chunk*4 + ks : 0], b);
            else product(sum, matrix_at(base + AT_REST + ((chunk - KRC)*2 + group)*8192) + 2*ks, b);
          }
          products_commit();
          products_wait<1>();
          if (first > 0 && lane == 0) barrier_arrive(empty + 8*((turn + S - 1) % S));
        }
        products_wait<0>();
        if (lane == 0) barrier_arrive(empty + 8*((turn + S - 1) % S));
        if (C > 1 && !*gave_up) {
          if (tid == 0) barrier_expect(slots_ready + 8*part, SLOT_BYTES);
          const int owner = warp/TO;
          #pragma unroll
          for (int i = 0; i < NN; i++) {
            const u32 slot = base + AT_SLOTS + part*SLOT_BYTES + (((rank*TO + warp % TO)*NN + i)*32 + lane)*16;
            send(in_block(slot, owner), make_float4(sum[4*i], sum[4*i + 1], sum[4*i + 2], sum[4*i + 3]), in_block(slots_ready + 8*part, owner));
          }
        }
      }
      if (!EARLY) read_operands();                                         // while the others' sums are on their way
      if (OVER) meet<ALL_MULTIPLIED>(MULTIPLY);
      if (at > 0) wait_for(gone, (at - 1) & 1);
      if constexpr (C > 1) {
        if (x >= 0 && !*gave_up) wait_for(slots_ready + 8*part, x & 1, watch, p.patience);
        if (watch.expired) *gave_up = 1;
      }
      #pragma unroll
      for (int l = 0; l < ITEMS; l++)
        if (here(l)) {
          float s[4] = {0.f, 0.f, 0.f, 0.f};
          if (x >= 0) {
            if constexpr (C == 1) { s[0] = sum[4*l]; s[1] = sum[4*l + 1]; s[2] = sum[4*l + 2]; s[3] = sum[4*l + 3]; }
            else {
              #pragma unroll
              for (int from = 0; from < C; from++) {
                const float4 v = *reinterpret_cast<const float4*>(memory + AT_SLOTS + part*SLOT_BYTES + (((from*TO + tile_of(l))*NN + eight_of(l))*32 + lane)*16);
                s[0] += v.x; s[1] += v.y; s[2] += v.z; s[3] += v.w;
              }
            }
          }
          if constexpr (MIXED) {                                           // low lanes hold gates 0 and 2, high lanes 1 and 3
            const bool up = gid >= 4;
            const float r0 = from_lane_xor(up ? s[0] : s[1], 16), r1 = from_lane_xor(up ? s[2] : s[3], 16);
            const float a0 = up ? r0 : s[0], a1 = up ? s[1] : r0, a2 = up ? r1 : s[2], a3 = up ? s[3] : r1;
            s[0] = a0; s[1] = a1; s[2] = a2; s[3] = a3;
          }
          #pragma unroll
          for (int e = 0; e < E; e++) {
            const int ul = unit(l, e), n = column(l, e), b = row0 + n, u = own0 + ul;
            const u32 own = (u32)min(b, B - 1)*H + u;
            const bool active = t < (p.lengths ? p.lengths[min(b, B - 1)] : T);
            u16* out = reinterpret_cast<u16*>(memory + AT_OUT + n*OUT_ROW) + ul;
            if constexpr (WAY == FORWARD) {
              float a[G], in[G], new_h = h[l][e], new_c = c[l][e];
              #pragma unroll
              for (int g = 0; g < G; g++) { a[g] = s[G == 1 ? e : g]; in[g] = widen(input[l][e][g]); }
              uint2 saved;
              cell_forward<CELL>(a, in, CELL == GRU ? p.b_u[u] : 0.f, new_h, new_c, saved);
              if (active) { h[l][e] = new_h; c[l][e] = new_c; }
              out[0] = active ? narrow(new_h) : (u16)0;
              if (CELL >= GRU && p.saved && b < B) p.saved[(size_t)t*B*H + own] = saved;
              if (CELL == LSTM && p.cells && b < B) p.cells[(size_t)t*B*H + own] = c[l][e];
            } else {
              const Operands o = operands[l][e];
              float d[G], extra = 0.f, new_dc = c[l][e], new_pass = h[l][e];
              const float after = CELL == LSTM ? p.cells[(size_t)t*B*H + own] : 0.f;
              cell_backward<CELL>(o.saved, after, o.c, CELL < LSTM ? widen(o.h) : 0.f, s[e] + h[l][e] + widen(o.dy), new_dc, new_pass, d, extra);
              if (active) { c[l][e] = new_dc; h[l][e] = new_pass; }
              #pragma unroll
              for (int g = 0; g < G; g++) out[g*UO] = active ? narrow(d[g]) : (u16)0;
              if (CELL == GRU && b < B) p.candidate[(size_t)t*B*H + own] = active ? narrow(extra) : (u16)0;
            }
          }
        }
      if (OVER) shared_between_proxies();                                  // the tensor unit will write there again
      barrier_arrive(there);
      if constexpr (P > 1) {                                               // the next part steps forward
        #pragma unroll
        for (int l = 0; l < ITEMS; l++)
          #pragma unroll
          for (int e = 0; e < E; e++) {
            const float old_h = h[l][e], old_c = c[l][e];
            #pragma unroll
            for (int i = 0; i + 1 < P; i++) { hs[i][l][e] = hs[i + 1][l][e]; cs[i][l][e] = cs[i + 1][l][e]; }
            hs[P - 1][l][e] = old_h; cs[P - 1][l][e] = old_c;
          }
      }
    }
    #pragma unroll
    for (int part = 0; part < P; part++)
      #pragma unroll
      for (int l = 0; l < ITEMS; l++)
        #pragma unroll
        for (int e = 0; e < E; e++)
          if (const int b = b0 + part*N + column(l, e); here(l) && b < B) {
            const u32 at = (u32)b*H + own0 + unit(l, e);
            leave(p, p.h_out, at, *gave_up ? __uint_as_float(0x7FFFFFFFu) : hs[part][l][e]);
            if (CELL == LSTM) leave(p, p.c_out, at, cs[part][l][e]);
          }
    if (*gave_up) *p.alarm = 1;
  }
  __syncthreads();
  if (C > 1) cluster_sync();
}
