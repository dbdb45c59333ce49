// Backward, one cluster of C blocks a batch slice of 8*NT rows: block r keeps the gradients d(U h) of its own H/C
// units at home, multiplies them into partial dh of all H units, and sends every block its share of the partials.
template<int CELL, int H, int C, int NT, int NW, int KREG>
DI void cluster_backward(const Run& p, unsigned char* memory) {
  constexpr int G = gates_of(CELL), UC = H/C, KL = G*UC, KP = (KL + 31)/32*32, KST = KP/16, MT = H/(16*NW), NTH = 32*NW, NB = 8*NT, SB = row_bytes(KP);
  constexpr int NI = UC*NB/4;                                              // float4 items: 2 units x 2 rows
  constexpr int PT = NTH >= 4*NI ? 4 : NTH >= 2*NI ? 2 : 1;                // threads that share one
  constexpr int LOOPS = (NI*PT + NTH - 1)/NTH, E = 4/PT;
  constexpr int KA = MT*NT >= 4 ? 1 : MT*NT >= 2 ? 2 : 4;
  constexpr bool OWN = C == 1 && PT == 1;                                  // a block alone: who has a sum also needs it
  constexpr bool AHEAD = OWN && CELL < GRU ? LOOPS*E <= 8 : LOOPS*E <= 2 && H >= 256;   // operands of the next moment already in registers
  static_assert(MT*16*NW == H && UC % 16 == 0 && NI*PT % NTH == 0 && KREG <= KST, "shape");
  const u32 barrier = shared_address(memory);                              // [2]
  float4* slots = reinterpret_cast<float4*>(memory + 128);                 // [2][C][NI]
  unsigned char* home = memory + 128 + 2*C*NI*16;                          // [2][NB][SB]
  uint4* rest = reinterpret_cast<uint4*>(memory + 128 + 2*C*NI*16 + 2*NB*SB);
  const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, gid = lane >> 2, q = lane & 3;
  const int rank = C > 1 ? (int)cluster_rank() : 0, b0 = (int)(blockIdx.x/C)*NB, u0 = rank*UC;
  const int T = p.T, B = p.B;

  uint4 held[KREG > 0 ? KREG : 1][MT];
  #pragma unroll
  for (int ks = 0; ks < KST; ks++)
    #pragma unroll
    for (int mt = 0; mt < MT; mt++) {
      const int r = (warp*MT + mt)*16 + gid, k = (ks >> 1)*32 + q*8 + (ks & 1)*4;          // k counts gate by gate, H/C units each
      const u16* w = p.w + (size_t)r*(G*H) + (k/UC)*H + u0 + k % UC;
      uint2 r0 = make_uint2(0, 0), r1 = r0;                                // past the last gate there is nothing
      if (k < KL) { r0 = *reinterpret_cast<const uint2*>(w); r1 = *reinterpret_cast<const uint2*>(w + (size_t)8*G*H); }
      const uint4 a = make_uint4(r0.x, r1.x, r0.y, r1.y);
      if (ks < KREG) held[ks][mt] = a; else rest[((warp*(KST-KREG) + (ks-KREG))*MT + mt)*32 + lane] = a;
    }

  if (KP > KL) for (int i = tid; i < 2*NB*(KP - KL); i += NTH) *reinterpret_cast<u16*>(home + i/(KP - KL)*SB + (KL + i % (KP - KL))*2) = 0;
  const int part = PT == 4 ? lane >> 3 : PT == 2 ? lane >> 4 : 0;
  int item[LOOPS], ends[LOOPS][E];
  u32 at[LOOPS][E], real = 0;
  float dc[LOOPS][E], c[LOOPS][E], pass[LOOPS][E];
  auto place = [&](int l, int e, int& u, int& n) {
    const int il = item[l] & 31, r = item[l] >> 5, ee = part*E + e;
    u = (r/NT)*16 + (il >> 2) + 8*(ee >> 1);
    n = (r % NT)*8 + 2*(il & 3) + (ee & 1);
  };
  #pragma unroll
  for (int l = 0; l < LOOPS; l++) {
    const int w = OWN ? warp*LOOPS + l : warp + l*NW;
    item[l] = PT == 4 ? w*8 + (lane & 7) : PT == 2 ? w*16 + (lane & 15) : w*32 + lane;
    #pragma unroll
    for (int e = 0; e < E; e++) {
      int u, n;
      place(l, e, u, n);
      if (b0 + n < B) real |= 1u << (l*E + e);
      const int b = min(b0 + n, B - 1);
      at[l][e] = (u32)b*H + u0 + u;
      ends[l][e] = p.lengths ? p.lengths[b] : T;
      pass[l][e] = p.dh ? p.dh[at[l][e]] : 0.f;
      dc[l][e] = CELL == LSTM && p.dc ? p.dc[at[l][e]] : 0.f;
      c[l][e] = CELL == LSTM ? p.cells[(size_t)(T-1)*B*H + at[l][e]] : 0.f;
    }
  }
  if (C > 1) {
    if (tid == 0) { barrier_init(barrier); barrier_init(barrier + 8); barrier_init_done(); }
    __syncthreads();
    cluster_sync();
  } else __syncthreads();

  // What goes out after a step: 16 bytes at a time, from the block's memory to a moment of the exchange.
  constexpr int GOING = NB*(KL/8), OUTS = (GOING + NTH - 1)/NTH;
  u32 from[OUTS], to[OUTS];
  #pragma unroll
  for (int j = 0; j < OUTS; j++) {
    const int i = tid + j*NTH, n = i/(KL/8), k = i % (KL/8)*8;
    from[j] = n*SB + k*2;
    to[j] = i < GOING && b0 + n < B ? (u32)(b0 + n)*(G*H) + (k/UC)*H + u0 + k % UC : ~0u;
  }
  Watch watch = {0, 0, false};
  Operands now[LOOPS][E], next[AHEAD ? LOOPS : 1][AHEAD ? E : 1];
  if constexpr (AHEAD) {
    #pragma unroll
    for (int l = 0; l < LOOPS; l++)
      #pragma unroll
      for (int e = 0; e < E; e++) fetch<CELL, H>(now[l][e], p, T - 1, at[l][e]);
  }
  for (int s = 0; s < T; s++) {
    const int t = T - 1 - s, x = s - 1;
    #pragma unroll
    for (int l = 0; l < LOOPS; l++)
      #pragma unroll
      for (int e = 0; e < E; e++) {
        if constexpr (!AHEAD) fetch<CELL, H>(now[l][e], p, t, at[l][e]);
        else if (t > 0) fetch<CELL, H>(next[l][e], p, t - 1, at[l][e]);
      }
    float product[LOOPS][E];
    if (s > 0) {
      const unsigned char* before = home + (x & 1)*NB*SB;
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
      if (C > 1 && tid == 0) barrier_expect(barrier + 8*(x & 1), H*NB*4);
      #pragma unroll
      for (int mt = 0; mt < MT; mt++) {
        const int tile = warp*MT + mt, owner = tile/(UC/16), local = tile % (UC/16);
        #pragma unroll
        for (int nt = 0; nt < NT; nt++) {
          float v[4];
          #pragma unroll
          for (int e = 0; e < 4; e++) {
            v[e] = sum[0][mt][nt][e];
            #pragma unroll
            for (int a = 1; a < KA; a++) v[e] += sum[a][mt][nt][e];
          }
          if constexpr (OWN) {
            #pragma unroll
            for (int e = 0; e < 4; e++) product[mt*NT + nt][e] = v[e];
            continue;
          }
          float4* slot = slots + ((x & 1)*C + rank)*NI + (local*NT + nt)*32 + lane;
          if (C == 1) *slot = make_float4(v[0], v[1], v[2], v[3]);
          else send(in_block(shared_address(slot), owner), make_float4(v[0], v[1], v[2], v[3]), in_block(barrier + 8*(x & 1), owner));
        }
      }
      if (OWN) {} else if (C == 1) __syncthreads(); else wait_for(barrier + 8*(x & 1), (x >> 1) & 1, watch, p.patience);
      #pragma unroll
      for (int l = 0; l < (OWN ? 0 : LOOPS); l++) {
        float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
        #pragma unroll
        for (int k = 0; k < (C + PT - 1)/PT; k++) {
          const int from = part + k*PT;
          if (from < C) {
            const float4 w = slots[((x & 1)*C + from)*NI + item[l]];
            v.x += w.x; v.y += w.y; v.z += w.z; v.w += w.w;
          }
        }
        if constexpr (PT == 1) { product[l][0] = v.x; product[l][1] = v.y; product[l][2] = v.z; product[l][3] = v.w; }
        else {
          const bool up = PT == 4 ? part >> 1 : part;
          const float a0 = from_lane_xor(up ? v.x : v.z, 16), a1 = from_lane_xor(up ? v.y : v.w, 16);
          const float k0 = (up ? v.z : v.x) + a0, k1 = (up ? v.w : v.y) + a1;
          if constexpr (PT == 2) { product[l][0] = k0; product[l][1] = k1; }
          else { const bool odd = part & 1; const float a2 = from_lane_xor(odd ? k0 : k1, 8); product[l][0] = (odd ? k1 : k0) + a2; }
        }
      }
    } else {
      #pragma unroll
      for (int l = 0; l < LOOPS; l++)
        #pragma unroll
        for (int e = 0; e < E; e++) product[l][e] = 0.f;
    }
    unsigned char* after = home + ((x + 1) & 1)*NB*SB;
    #pragma unroll
    for (int l = 0; l < LOOPS; l++)
      #pragma unroll
      for (int e = 0; e < E; e++) {
        int u, n;
        place(l, e, u, n);
        const Operands o = now[l][e];
        if constexpr (AHEAD) now[l][e] = next[l][e];
        const bool active = t < ends[l][e];
        float d[G], extra = 0.f, new_dc = dc[l][e], new_pass = pass[l][e];
        cell_backward<CELL>(o.saved, c[l][e], o.c, CELL < LSTM ? widen(o.h) : 0.f, product[l][e] + pass[l][e] + widen(o.dy), new_dc, new_pass, d, extra);
        c[l][e] = o.c;
        if (active) { dc[l][e] = new_dc; pass[l][e] = new_pass; }
        #pragma unroll
        for (int g = 0; g < G; g++) *reinterpret_cast<u16*>(after + n*SB + (g*UC + u)*2) = active ? narrow(d[g]) : (u16)0;
        if (CELL == GRU && ((real >> (l*E + e)) & 1)) p.candidate[(size_t)t*B*H + at[l][e]] = active ? narrow(extra) : (u16)0;
      }
    __syncthreads();
    u16* moment = p.exchange + (size_t)t*B*(G*H);
    #pragma unroll
    for (int j = 0; j < OUTS; j++)
      if (to[j] != ~0u) *reinterpret_cast<uint4*>(moment + to[j]) = *reinterpret_cast<const uint4*>(after + from[j]);
  }
  #pragma unroll
  for (int l = 0; l < LOOPS; l++)
    #pragma unroll
    for (int e = 0; e < E; e++)
      if ((real >> (l*E + e)) & 1) {
        leave(p, p.h_out, at[l][e], watch.expired ? __uint_as_float(0x7FFFFFFFu) : pass[l][e]);
        if (CELL == LSTM) leave(p, p.c_out, at[l][e], dc[l][e]);
      }
  if (watch.expired) *p.alarm = 1;
  if (C > 1) cluster_sync();
}
