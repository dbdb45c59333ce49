// The cells, one unit at a time, forward and backward. What a cell keeps for backward is four numbers a unit:
// LSTM i f g o, GRU r z n and q = U_n h + b_u.
enum { TANH = 0, RELU = 1, GRU = 2, LSTM = 3 };
__device__ constexpr int gates_of(int cell) { return cell == LSTM ? 4 : cell == GRU ? 3 : 1; }

// What the owner of a unit carries along: h (GRU needs it unrounded), and the cell.
template<int CELL> DI float cell_forward(const float (&a)[gates_of(CELL)], const float (&x)[gates_of(CELL)], float b_u, float& h, float& c, float4& kept) {
  if constexpr (CELL == LSTM) {
    const float i = sigmoid_of(a[0]+x[0]), f = sigmoid_of(a[1]+x[1]), g = tanh_of(a[2]+x[2]), o = sigmoid_of(a[3]+x[3]);
    c = fmaf(f, c, i*g);
    kept = make_float4(i, f, g, o);
    h = o*tanh_of(c);
  } else if constexpr (CELL == GRU) {
    const float r = sigmoid_of(a[0]+x[0]), z = sigmoid_of(a[1]+x[1]), q = a[2] + b_u, n = tanh_of(fmaf(r, q, x[2]));
    kept = make_float4(r, z, n, q);
    h = fmaf(z, h - n, n);
  } else {
    const float s = a[0] + x[0];
    h = CELL == TANH ? tanh_of(s) : s < 0.f ? 0.f : s;   // written so that a NaN stays one
  }
  return h;
}

// From what the LSTM shows and the gradient of its whole cell to those of its gates; dc goes on to the cell before.
DI void lstm_backward(float4 kept, float shown, float c_before, float dh, float& dc, float (&d)[4]) {
  const float i = kept.x, f = kept.y, g = kept.z, o = kept.w;
  d[0] = dc*g*i*(1.f-i);
  d[1] = dc*c_before*f*(1.f-f);
  d[2] = dc*i*(1.f-g*g);
  d[3] = dh*shown*o*(1.f-o);
  dc *= f;
}

// d: into U h.  pass: what reaches the state before without the product.  extra: into the GRU's candidate.
template<int CELL> DI void cell_backward(float4 kept, float c_after, float c_before, float h, float dh, float& dc, float& pass, float (&d)[gates_of(CELL)], float& extra) {
  if constexpr (CELL == LSTM) {
    const float shown = tanh_of(c_after);
    dc = fmaf(dh*kept.w, 1.f - shown*shown, dc);
    lstm_backward(kept, shown, c_before, dh, dc, d);
    pass = 0.f;
  } else if constexpr (CELL == GRU) {
    const float r = kept.x, z = kept.y, n = kept.z, q = kept.w;
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
