// Forward, one cluster of C blocks a batch slice of 8*NT rows: block r holds the rows of U of its H/C units, in
// registers (the first KREG steps of k) and shared memory; h is gathered by writing it into every block's memory.
//
// A tile of 16 matrix rows is 4 units by 4 gates, so that one shuffle brings the gates of a unit together (the
// GRU's fourth is zero); without gates it is 16 units. Of each 32 values of k a lane holds 8 neighbours, in the
// matrix and in h alike: which k meets which does not matter, only that both sides agree.
template<int CELL, int H, int C, int NT, int NW, int KREG>
DI void cluster_forward(const Run& p, unsigned char* memory) {
  constexpr int G = gates_of(CELL), TU = G == 1 ? 16 : 4, E = G == 1 ? 4 : 1, UC = H/C, MT = UC/(TU*NW);
  constexpr int NTH = 32*NW, KST = H/16, NB = 8*NT, SB = row_bytes(H);
  constexpr int KA = MT*NT >= 4 ? 1 : MT*NT >= 2 ? 2 : 4;   // independent sums, so that products overlap
  static_assert(MT*TU*NW == UC && UC % 8 == 0 && KST % 2 == 0 && KREG <= KST, "shape");
  const u32 barrier = shared_address(memory);                              // [2]
  unsigned char* states = memory + 128;                                    // [2][NB][SB]
  uint4* rest = reinterpret_cast<uint4*>(memory + 128 + 2*NB*SB);          // [NW][KST-KREG][MT][32]
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, gid = lane >> 2, q = lane & 3;
  const int rank = C > 1 ? (int)cluster_rank() : 0, b0 = (int)(blockIdx.x/C)*NB, u0 = rank*UC;
  const int T = p.T, B = p.B;

  uint4 held[KREG > 0 ? KREG : 1][MT];
  #pragma unroll
  for (int ks = 0; ks < KST; ks++)
    #pragma unroll
    for (int mt = 0; mt < MT; mt++) {
      const int u = u0 + (warp*MT + mt)*TU + (G == 1 ? gid : gid & 3), g = G == 1 ? 0 : gid >> 2, k = (ks >> 1)*32 + q*8 + (ks & 1)*4;
      const uint2 r0 = *reinterpret_cast<const uint2*>(p.w + ((size_t)g*H + u)*H + k);
      uint2 r1 = make_uint2(0, 0);
      if (G == 1) r1 = *reinterpret_cast<const uint2*>(p.w + ((size_t)u + 8)*H + k);
      else if (g + 2 < G) r1 = *reinterpret_cast<const uint2*>(p.w + ((size_t)(g + 2)*H + u)*H + k);
      const uint4 a = make_uint4(r0.x, r1.x, r0.y, r1.y);
      if (ks < KREG) held[ks][mt] = a; else rest[((warp*(KST-KREG) + (ks-KREG))*MT + mt)*32 + lane] = a;
    }
  for (int i = tid; i < NB*(H/8); i += NTH) {
    const int n = i/(H/8), k8 = i % (H/8), b = min(b0 + n, B - 1);
    *reinterpret_cast<uint4*>(states + n*SB + k8*16) = *reinterpret_cast<const uint4*>(p.y + (size_t)b*H + k8*8);
  }

  auto unit = [&](int mt, int e) { return u0 + (warp*MT + mt)*TU + (G == 1 ? gid + 8*(e >> 1) : gid & 3); };
  auto column = [&](int nt, int e) { return nt*8 + 2*q + (G == 1 ? e & 1 : gid >> 2); };
  float h[MT][NT][E], c[MT][NT][E], b_u[MT];
  u16 now[MT][NT][E][G], next[MT][NT][E][G];
  int ends[NT][E > 1 ? 2 : 1];
  auto read_input = [&](int t, u16 (&into)[MT][NT][E][G]) {
    const u16* x = p.x + (size_t)t*B*G*H;
    #pragma unroll
    for (int mt = 0; mt < MT; mt++)
      #pragma unroll
      for (int nt = 0; nt < NT; nt++)
        #pragma unroll
        for (int e = 0; e < E; e++) {
          const int u = unit(mt, e), b = min(b0 + column(nt, e), B - 1);
          #pragma unroll
          for (int g = 0; g < G; g++) {
            into[mt][nt][e][g] = x[(u32)(b*G + g)*H + u];
            if ((u & 15) == 0 && t + 4 < T) prefetch(x + (size_t)4*B*G*H + (u32)(b*G + g)*H + u);
          }
        }
  };
  #pragma unroll
  for (int nt = 0; nt < NT; nt++)
    #pragma unroll
    for (int e = 0; e < (E > 1 ? 2 : 1); e++) ends[nt][e] = p.lengths ? p.lengths[min(b0 + column(nt, e), B - 1)] : T;
  #pragma unroll
  for (int mt = 0; mt < MT; mt++) {
    b_u[mt] = CELL == GRU ? p.b_u[unit(mt, 0)] : 0.f;
    #pragma unroll
    for (int nt = 0; nt < NT; nt++)
      #pragma unroll
      for (int e = 0; e < E; e++) {
        const u32 at = (u32)min(b0 + column(nt, e), B - 1)*H + unit(mt, e);
        h[mt][nt][e] = widen(p.y[at]);
        c[mt][nt][e] = CELL == LSTM ? p.c0[at] : 0.f;
      }
  }
  read_input(0, now);
  if (C > 1) {
    if (tid == 0) { barrier_init(barrier); barrier_init(barrier + 8); barrier_init_done(); }
    __syncthreads();
    cluster_sync();
  } else __syncthreads();

  Watch watch = {0, 0, false};
  for (int t = 0; t < T; t++) {
    const size_t row = (size_t)t*B*H;
    read_input(min(t + 1, T - 1), next);
    const unsigned char* before = states + (t & 1)*NB*SB;
    float sum[KA][MT][NT][4];
    #pragma unroll
    for (int a = 0; a < KA; a++)
      #pragma unroll
      for (int mt = 0; mt < MT; mt++)
        #pragma unroll
        for (int nt = 0; nt < NT; nt++) { sum[a][mt][nt][0] = sum[a][mt][nt][1] = sum[a][mt][nt][2] = sum[a][mt][nt][3] = 0.f; }
    #pragma unroll
    for (int k2 = 0; k2 < KST/2; k2++) {
      uint4 v[NT];
      #pragma unroll
      for (int nt = 0; nt < NT; nt++) v[nt] = *reinterpret_cast<const uint4*>(before + (nt*8 + gid)*SB + k2*64 + q*16);
      #pragma unroll
      for (int kk = 0; kk < 2; kk++)
        #pragma unroll
        for (int mt = 0; mt < MT; mt++) {
          const int ks = 2*k2 + kk;
          uint4 a;
          if (ks < KREG) a = held[ks < KREG ? ks : 0][mt]; else a = rest[((warp*(KST-KREG) + (ks-KREG))*MT + mt)*32 + lane];
          #pragma unroll
          for (int nt = 0; nt < NT; nt++) mma(sum[ks % KA][mt][nt], a, kk ? v[nt].z : v[nt].x, kk ? v[nt].w : v[nt].y);
        }
    }
    unsigned char* after = states + ((t + 1) & 1)*NB*SB;
    #pragma unroll
    for (int mt = 0; mt < MT; mt++)
      #pragma unroll
      for (int nt = 0; nt < NT; nt++) {
        #pragma unroll
        for (int a = 1; a < KA; a++)
          #pragma unroll
          for (int e = 0; e < 4; e++) sum[0][mt][nt][e] += sum[a][mt][nt][e];
        const float* s = sum[0][mt][nt];
        float gathered[4] = {s[0], s[1], s[2], s[3]};
        if constexpr (G > 1) {                                             // low lanes hold gates 0 and 2, high lanes 1 and 3
          const bool up = gid >= 4;
          const float r0 = from_lane_xor(up ? s[0] : s[1], 16), r1 = from_lane_xor(up ? s[2] : s[3], 16);
          gathered[0] = up ? r0 : s[0]; gathered[1] = up ? s[1] : r0; gathered[2] = up ? r1 : s[2]; gathered[3] = up ? s[3] : r1;
        }
        #pragma unroll
        for (int e = 0; e < E; e++) {
          float a[G], x[G];
          #pragma unroll
          for (int g = 0; g < G; g++) { a[g] = gathered[G == 1 ? e : g]; x[g] = widen(now[mt][nt][e][g]); now[mt][nt][e][g] = next[mt][nt][e][g]; }
          const int u = unit(mt, e), n = column(nt, e), b = b0 + n;
          const bool active = t < ends[nt][E > 1 ? e & 1 : 0];
          float new_h = h[mt][nt][e], new_c = c[mt][nt][e];
          uint2 saved;
          cell_forward<CELL>(a, x, b_u[mt], new_h, new_c, saved);
          if (active) { h[mt][nt][e] = new_h; c[mt][nt][e] = new_c; }
          *reinterpret_cast<u16*>(after + n*SB + u*2) = active ? narrow(new_h) : (u16)0;
          if (CELL >= GRU && p.saved && b < B) p.saved[row + (u32)b*H + u] = saved;
          if (CELL == LSTM && p.cells && b < B) p.cells[row + (u32)b*H + u] = c[mt][nt][e];
        }
      }
    __syncthreads();
    constexpr int CH = UC/8*NB;                                            // 16-byte pieces of h that are made here
    if (C > 1 && t + 1 < T && tid == 0) barrier_expect(barrier + 8*(t & 1), (C-1)*UC*NB*2);
    #pragma unroll
    for (int j = 0; j < (CH*C + NTH - 1)/NTH; j++) {
      const int i = tid + j*NTH;
      if (i < CH*C) {
        const int piece = i % CH, to = i/CH, n = piece/(UC/8), k8 = piece % (UC/8);
        unsigned char* s = after + n*SB + u0*2 + k8*16;
        const uint4 v = *reinterpret_cast<const uint4*>(s);
        if ((C == 1 && !CLUSTERS) || to == rank) { if (b0 + n < B) *reinterpret_cast<uint4*>(p.y + row + (size_t)B*H + (size_t)(b0 + n)*H + u0 + k8*8) = v; }
        else if (t + 1 < T) send(in_block(shared_address(s), to), v, in_block(barrier + 8*(t & 1), to));
      }
    }
    if (C > 1 && t + 1 < T) wait_for(barrier + 8*(t & 1), (t >> 1) & 1, watch, p.patience);
  }
  #pragma unroll
  for (int mt = 0; mt < MT; mt++)
    #pragma unroll
    for (int nt = 0; nt < NT; nt++)
      #pragma unroll
      for (int e = 0; e < E; e++) {
        const int b = b0 + column(nt, e);
        if (b < B) {
          leave(p, p.h_out, (u32)b*H + unit(mt, e), watch.expired ? __uint_as_float(0x7FFFFFFFu) : h[mt][nt][e]);
          if (CELL == LSTM) leave(p, p.c_out, (u32)b*H + unit(mt, e), c[mt][nt][e]);
        }
      }
  if (watch.expired) *p.alarm = 1;
  if (C > 1) cluster_sync();                                               // nobody leaves while others may write into its memory
}
