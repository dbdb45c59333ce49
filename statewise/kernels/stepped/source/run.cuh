// What a walk over time is given.
// T time, B batch, D width, P the width padded for the product, G gates.
struct Run {
  V* gates;            // [T, B, G, D]  forward: the input's share, in whose place gates are left (GRU: r z n);  backward: they
  V* inner;            // GRU: q [T, B, D];  layer norm: U h [T, B, G, D];  null: nothing is kept
  V* y;                // [T+1, B, D], the first state in front
  float* cells;        // LSTM: [T, B, D], the cell after each step;  null: not kept
  const float* c0;     // LSTM, backward: [B, D]
  const float* b_u;    // GRU: the candidate's inner bias [D]
  const int* lengths;  // [B], or null where all rows are full
  float* h;            // [B, D]  forward: at first the first state, in the end the last;  backward: what passes by the product
  float* c;            // [B, D]  LSTM: the cell likewise;  backward: its gradient
  const V* dy;         // [T, B, D]
  V* da;               // [T, B, G, D], gradient of the input's share
  V* du;               // gradient of U h where that is another: GRU's candidate [T, B, D], layer norm's all [T, B, G, D]
  const float* gain;   // layer norm of U h: [G, D]
  const float* cell_gain;
  const float* cell_bias;
  float4* spread;      // layer norm: [T, B], mean and inverse deviation of U h, and of the cell
  float* gain_sum;     // [B, G, D], gradients of the gain, a row of its own for each row of the batch
  float* cell_sum;     // [B, 2, D], gradients of the cell's gain and bias
  int T, B, t;         // t: steps that earlier graphs have made
};

// What stays at its address from walk to walk, so that a graph can hold it: the product, and what goes into the next.
// It has room for at least as many rows as there are.
struct Place { V* product; V* operand; int rows, D, P; };

// Backward, a step's kernel may begin while its product ends; what neither of the two changes it reads before it waits
// here. It writes nothing before: the product may still be reading. (Forward this was slower: there is less to read.)
DI void await_product() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// N neighbours at once; they lie at a multiple of N.
template<class T, int N> struct alignas(sizeof(T)*N) Some { T v[N]; };
template<int N, class T> DI void read(const T* p, float (&to)[N]) {
  const Some<T, N> some = *reinterpret_cast<const Some<T, N>*>(p);
  #pragma unroll
  for (int n = 0; n < N; n++) to[n] = wide(some.v[n]);
}
template<int N, class T> DI void write(T* p, const float (&from)[N]) {
  Some<T, N> some;
  #pragma unroll
  for (int n = 0; n < N; n++) put(some.v[n], from[n]);
  *reinterpret_cast<Some<T, N>*>(p) = some;
}
