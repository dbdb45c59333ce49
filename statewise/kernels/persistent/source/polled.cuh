// Forward or backward over the whole chip: a cluster of C blocks owns HSC units of 8*NT rows, each block a slice of
// k, each warp a slice of that. What crosses to other clusters goes through global memory, which is filled with the
// mark "not there yet" beforehand: data is its own flag, every moment has its own addresses, nothing is reused.
//
//   forward:   h_t of all units -> U h of HSC units (G rows each, k = H)
//   backward:  d(U h)_{t+1} of all gates -> dh of HSC units (one row each, k = G*H)
//
// All blocks must be on the chip at once: the launch is cooperative.
template<int CELL, int WAY, int H, int C, int HSC, int NT, int NW, int KREG, int DB, int PCH>
DI void polled(const Run& p, unsigned char* memory) {
  constexpr int G = gates_of(CELL), R = WAY == FORWARD ? G : 1, K = WAY == FORWARD ? H : G*H;
  constexpr int KC = K/C, KW = KC/NW, KST = KW/16, KG = KW/32, KGC = KG/PCH, M = R*HSC, MT = M/16, UO = HSC/C;
  constexpr int NTH = 32*NW, NB = 8*NT, EL = UO*NB, EPT = (EL + NTH - 1)/NTH, NS = 4;
  constexpr int SLOTS = C > 1 ? NS*C*R*EL*4 : 0;
  static_assert(KW*NW*C == K && KW % 32 == 0 && KGC*PCH == KG && UO*C == HSC && UO % 8 == 0 && M % 16 == 0 && H % HSC == 0 && KREG <= KST, "shape");
  const u32 barrier = shared_address(memory);                              // [NS]
  float* slots = reinterpret_cast<float*>(memory + 128);                   // [NS][C][R][EL]
  float2* sums = reinterpret_cast<float2*>(memory + 128 + SLOTS);          // [DB][NW][MT][2][NT][32]
  uint4* rest = reinterpret_cast<uint4*>(memory + 128 + SLOTS + DB*NW*M*NB*4);
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, gid = lane >> 2, q = lane & 3;
  const int rank = C > 1 ? (int)cluster_rank() : 0, u0 = (int)(blockIdx.x/C)*HSC, own0 = u0 + rank*UO, b0 = (int)blockIdx.y*NB;
  const int T = p.T, B = p.B;
  // Eight units by eight batch rows make 64 words; the swap keeps a warp that reads 8 units by 4 rows off shared banks.
  const int swapped = gid*4 + (q ^ ((gid >> 2) << 1));

  uint4 held[KREG > 0 ? KREG : 1][MT];
  #pragma unroll
  for (int ks = 0; ks < KST; ks++)
    #pragma unroll
    for (int mt = 0; mt < MT; mt++) {
      const int r = mt*16 + gid, s = r + 8, k = rank*KC + warp*KW + (ks >> 1)*32 + q*8 + (ks & 1)*4;
      const uint2 r0 = *reinterpret_cast<const uint2*>(p.w + ((size_t)(r/HSC)*H + u0 + r % HSC)*K + k);
      const uint2 r1 = *reinterpret_cast<const uint2*>(p.w + ((size_t)(s/HSC)*H + u0 + s % HSC)*K + k);
      const uint4 a = make_uint4(r0.x, r1.x, r0.y, r1.y);
      if (ks < KREG) held[ks][mt] = a; else rest[((warp*(KST-KREG) + (ks-KREG))*MT + mt)*32 + lane] = a;
    }

  // Element j of a thread: unit `unit(j)` of the block's own, batch row `column(j)` of the slice.
  auto column = [&](int j) { return ((tid + j*NTH) >> 3) % NB; };
  auto unit = [&](int j) { return ((tid + j*NTH) >> 3)/NB*8 + (tid & 7); };
  float h[EPT], c[EPT], b_u[EPT], dc[EPT], pass[EPT];
  int ends[EPT];
  u32 at[EPT];
  #pragma unroll
  for (int j = 0; j < EPT; j++) {
    h[j] = c[j] = b_u[j] = dc[j] = pass[j] = 0.f;
    ends[j] = 0;
    at[j] = 0;
    if (tid + j*NTH < EL) {
      const int b = min(b0 + column(j), B - 1), u = own0 + unit(j);
      at[j] = (u32)b*H + u;
      ends[j] = p.lengths ? p.lengths[b] : T;
      if constexpr (WAY == FORWARD) {
        h[j] = widen(p.y[at[j]]);
        if (CELL == LSTM) c[j] = p.c0[at[j]];
        if (CELL == GRU) b_u[j] = p.b_u[u];
      } else {
        pass[j] = p.dh ? p.dh[at[j]] : 0.f;
        if (CELL == LSTM) { dc[j] = p.dc ? p.dc[at[j]] : 0.f; c[j] = p.cells[(size_t)(T-1)*B*H + at[j]]; }
      }
    }
  }
  if (C > 1) {
    if (tid == 0) {
      #pragma unroll
      for (int i = 0; i < NS; i++) barrier_init(barrier + 8*i);
      barrier_init_done();
    }
    __syncthreads();
    cluster_sync();
  } else __syncthreads();

  Watch asking = {0, 0, false}, watch = {0, 0, false};
  for (int step = 0; step < T; step++) {
    const int t = WAY == FORWARD ? step : T - 1 - step, x = WAY == FORWARD ? step : step - 1;
    u16 input[EPT][G];
    Operands operands[EPT];
    #pragma unroll
    for (int j = 0; j < EPT; j++)
      if (tid + j*NTH < EL) {
        if constexpr (WAY == FORWARD) {
          const int b = min(b0 + column(j), B - 1), u = own0 + unit(j);
          const u16* row = p.x + ((size_t)t*B + b)*(G*H) + u;
          #pragma unroll
          for (int g = 0; g < G; g++) {
            input[j][g] = row[g*H];
            if ((tid & 7) == 0 && t + 4 < T) prefetch(row + (size_t)4*B*G*H + g*H);
          }
          if ((tid & 7) == 0 && t + 5 <= T) prefetch(p.y + (size_t)(t + 5)*B*H + at[j]);
        } else {
          fetch<CELL, H>(operands[j], p, t, at[j]);
          if ((tid & 7) == 0 && t >= 5) {
            #pragma unroll
            for (int g = 0; g < G; g++) prefetch(p.exchange + ((size_t)(t - 5)*B + min(b0 + column(j), B - 1))*K + g*H + own0 + unit(j));
          }
        }
      }
    float2* mine = sums + (DB == 2 ? x & 1 : 0)*NW*MT*2*NT*32;
    if (x >= 0) {
      float sum[MT][NT][4];
      #pragma unroll
      for (int mt = 0; mt < MT; mt++)
        #pragma unroll
        for (int nt = 0; nt < NT; nt++) { sum[mt][nt][0] = sum[mt][nt][1] = sum[mt][nt][2] = sum[mt][nt][3] = 0.f; }
      const u16* from = WAY == FORWARD ? p.y + (size_t)t*B*K : p.exchange + (size_t)(t + 1)*B*K;
      const u16* rows[NT];
      #pragma unroll
      for (int nt = 0; nt < NT; nt++) rows[nt] = from + (size_t)min(b0 + nt*8 + gid, B - 1)*K + rank*KC + warp*KW + q*8;
      #pragma unroll
      for (int piece = 0; piece < PCH; piece++) {
        uint4 v[KGC][NT];
        #pragma unroll
        for (int k = 0; k < KGC; k++)
          #pragma unroll
          for (int nt = 0; nt < NT; nt++) v[k][nt] = ask(rows[nt] + (piece*KGC + k)*32);
        while (WAY == BACKWARD || step > 0) {                              // the first state is the caller's, and may hold any bits
          bool missing = false;
          #pragma unroll
          for (int k = 0; k < KGC; k++)
            #pragma unroll
            for (int nt = 0; nt < NT; nt++) missing |= absent(v[k][nt]);
          if (!any_lane(missing)) break;
          if (any_lane(asking.gives_up(p.patience))) break;
          #pragma unroll
          for (int k = 0; k < KGC; k++)
            #pragma unroll
            for (int nt = 0; nt < NT; nt++) ask_again(v[k][nt], rows[nt] + (piece*KGC + k)*32, absent(v[k][nt]));
        }
        asking.rest();
        #pragma unroll
        for (int kk = 0; kk < 2*KGC; kk++)
          #pragma unroll
          for (int mt = 0; mt < MT; mt++) {
            const int ks = piece*2*KGC + kk;
            uint4 a;
            if (ks < KREG) a = held[ks < KREG ? ks : 0][mt]; else a = rest[((warp*(KST-KREG) + (ks-KREG))*MT + mt)*32 + lane];
            #pragma unroll
            for (int nt = 0; nt < NT; nt++) {
              const uint4 w = v[kk >> 1][nt];
              mma(sum[mt][nt], a, kk & 1 ? w.z : w.x, kk & 1 ? w.w : w.y);
            }
          }
      }
      #pragma unroll
      for (int mt = 0; mt < MT; mt++)
        #pragma unroll
        for (int nt = 0; nt < NT; nt++) {
          mine[(((warp*MT + mt)*2 + 0)*NT + nt)*32 + swapped] = make_float2(sum[mt][nt][0], sum[mt][nt][1]);
          mine[(((warp*MT + mt)*2 + 1)*NT + nt)*32 + swapped] = make_float2(sum[mt][nt][2], sum[mt][nt][3]);
        }
      __syncthreads();
      if constexpr (C > 1) {
        if (tid == 0) barrier_expect(barrier + 8*(x & (NS-1)), C*R*EL*4);
        constexpr int ROWS = MT*2*NT;                                      // of 32 float2: 8 units by 8 batch rows
        #pragma unroll
        for (int j = 0; j < (ROWS + NW - 1)/NW; j++) {
          const int r = warp + j*NW;
          if (r < ROWS) {
            float2 v = make_float2(0.f, 0.f);
            #pragma unroll
            for (int w = 0; w < NW; w++) { const float2 o = mine[(w*ROWS + r)*32 + lane]; v.x += o.x; v.y += o.y; }
            const int nt = r % NT, first = (r/NT)*8, g = first/HSC, ub = first % HSC, owner = ub/UO, uh = ub % UO/8;
            float* slot = slots + (((x & (NS-1))*C + rank)*R + g)*EL + ((uh*NT + nt)*32 + lane)*2;
            send(in_block(shared_address(slot), owner), v, in_block(barrier + 8*(x & (NS-1)), owner));
          }
        }
      }
    }
    if (warp*32 < EL) {
      if constexpr (C > 1) if (x >= 0) wait_for(barrier + 8*(x & (NS-1)), (x/NS) & 1, watch, p.patience);
      #pragma unroll
      for (int j = 0; j < EPT; j++)
        if (tid + j*NTH < EL) {
          const int n = column(j), ul = tid & 7, uh = unit(j) >> 3, word = ul*8 + ((n & 7) ^ (ul & 4)), b = b0 + n;
          float total[R];
          #pragma unroll
          for (int g = 0; g < R; g++) {
            total[g] = 0.f;
            if (x >= 0) {
              if constexpr (C > 1) {
                #pragma unroll
                for (int src = 0; src < C; src++) total[g] += slots[(((x & (NS-1))*C + src)*R + g)*EL + (uh*NT + (n >> 3))*64 + word];
              } else {
                const int half = (g*HSC + uh*8) >> 3;
                #pragma unroll
                for (int w = 0; w < NW; w++) total[g] += reinterpret_cast<const float*>(mine)[((w*MT*2 + half)*NT + (n >> 3))*64 + word];
              }
            }
          }
          const bool active = t < ends[j], odd = ul & 1;
          if constexpr (WAY == FORWARD) {
            float in[G], new_h = h[j], new_c = c[j];
            #pragma unroll
            for (int g = 0; g < G; g++) in[g] = widen(input[j][g]);
            uint2 saved;
            cell_forward<CELL>(total, in, b_u[j], new_h, new_c, saved);
            if (active) { h[j] = new_h; c[j] = new_c; }
            const float shown = active ? new_h : 0.f, other = from_lane_xor(shown, 1);
            const size_t row = (size_t)t*B*H + at[j];
            if (b < B) {
              if (!odd) publish(p.y + row + (size_t)B*H, pack(shown, other));
              if (CELL >= GRU && p.saved) p.saved[row] = saved;
              if (CELL == LSTM && p.cells) p.cells[row] = c[j];
            }
          } else {
            const Operands o = operands[j];
            float d[G], extra = 0.f, new_dc = dc[j], new_pass = pass[j];
            cell_backward<CELL>(o.saved, c[j], o.c, CELL < LSTM ? widen(o.h) : 0.f, total[0] + pass[j] + widen(o.dy), new_dc, new_pass, d, extra);
            if (CELL == LSTM) c[j] = o.c;
            if (active) { dc[j] = new_dc; pass[j] = new_pass; }
            u16* row = p.exchange + ((size_t)t*B + b)*K + own0 + unit(j) - odd;
            #pragma unroll
            for (int g = 0; g < G; g += 2) {                               // two neighbours share the work: a gate each
              const int g1 = g + 1 < G ? g + 1 : g;
              const float a0 = active ? d[g] : 0.f, a1 = active ? d[g1] : 0.f;
              const float got = from_lane_xor(odd && g1 > g ? a0 : g1 > g ? a1 : a0, 1);
              const u32 word = odd ? pack(got, a1) : pack(a0, got);
              if (b < B && (g1 > g || !odd)) publish(row + (odd ? g1 : g)*H, word);
            }
            if (CELL == GRU && b < B) p.candidate[(size_t)t*B*H + at[j]] = active ? narrow(extra) : (u16)0;
          }
        }
    }
    if (DB == 1 && x >= 0) __syncthreads();
  }
  const bool expired = asking.expired || watch.expired;
  #pragma unroll
  for (int j = 0; j < EPT; j++)
    if (tid + j*NTH < EL && b0 + column(j) < B) {
      leave(p, p.h_out, at[j], expired ? __uint_as_float(0x7FFFFFFFu) : WAY == FORWARD ? h[j] : pass[j]);
      if (CELL == LSTM) leave(p, p.c_out, at[j], WAY == FORWARD ? c[j] : dc[j]);
    }
  if (expired) *p.alarm = 1;
  if (C > 1) cluster_sync();
}
