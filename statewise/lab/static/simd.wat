;; Products with a matrix, arithmetic and curves in float32, four numbers at a time. `simd.js` holds these bytes in base64; a test
;; assembles this file again and compares. Addresses and sizes are in bytes. `k` and `n` are multiples of 16; `row` is
;; what lies between two rows of `b`.
(module
  (import "lab" "memory" (memory 1))

  ;; y[j] = a . b[j] for n / 4 rows of b, four rows at once: a is read once for all, and no sum waits for another.
  (func (export "dots") (param $y i32) (param $a i32) (param $b i32) (param $row i32) (param $k i32) (param $n i32)
    (local $at i32) (local $p i32) (local $end i32) (local $x v128)
    (local $s0 v128) (local $s1 v128) (local $s2 v128) (local $s3 v128)
    (local.set $end (i32.add (local.get $y) (local.get $n)))
    (loop $rows
      (local.set $s0 (v128.const i32x4 0 0 0 0))
      (local.set $s1 (v128.const i32x4 0 0 0 0))
      (local.set $s2 (v128.const i32x4 0 0 0 0))
      (local.set $s3 (v128.const i32x4 0 0 0 0))
      (local.set $at (i32.const 0))
      (loop $along
        (local.set $x (v128.load (i32.add (local.get $a) (local.get $at))))
        (local.set $p (i32.add (local.get $b) (local.get $at)))
        (local.set $s0 (f32x4.add (local.get $s0) (f32x4.mul (local.get $x) (v128.load (local.get $p)))))
        (local.set $p (i32.add (local.get $p) (local.get $row)))
        (local.set $s1 (f32x4.add (local.get $s1) (f32x4.mul (local.get $x) (v128.load (local.get $p)))))
        (local.set $p (i32.add (local.get $p) (local.get $row)))
        (local.set $s2 (f32x4.add (local.get $s2) (f32x4.mul (local.get $x) (v128.load (local.get $p)))))
        (local.set $p (i32.add (local.get $p) (local.get $row)))
        (local.set $s3 (f32x4.add (local.get $s3) (f32x4.mul (local.get $x) (v128.load (local.get $p)))))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br_if $along (i32.lt_u (local.get $at) (local.get $k))))
      ;; Lanes 0 and 2, 1 and 3 of two sums side by side, then these.
      (local.set $s0 (f32x4.add
        (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $s0) (local.get $s1))
        (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $s0) (local.get $s1))))
      (local.set $s2 (f32x4.add
        (i8x16.shuffle 0 1 2 3 16 17 18 19 4 5 6 7 20 21 22 23 (local.get $s2) (local.get $s3))
        (i8x16.shuffle 8 9 10 11 24 25 26 27 12 13 14 15 28 29 30 31 (local.get $s2) (local.get $s3))))
      (v128.store (local.get $y) (f32x4.add
        (i8x16.shuffle 0 1 2 3 4 5 6 7 16 17 18 19 20 21 22 23 (local.get $s0) (local.get $s2))
        (i8x16.shuffle 8 9 10 11 12 13 14 15 24 25 26 27 28 29 30 31 (local.get $s0) (local.get $s2))))
      (local.set $b (i32.add (local.get $b) (i32.shl (local.get $row) (i32.const 2))))
      (local.set $y (i32.add (local.get $y) (i32.const 16)))
      (br_if $rows (i32.lt_u (local.get $y) (local.get $end)))))

  ;; y = the sum of a[i] b[i] over k / 4 rows of b, of which n bytes are read; four rows at once.
  (func (export "mix") (param $y i32) (param $a i32) (param $b i32) (param $row i32) (param $k i32) (param $n i32)
    (local $at i32) (local $p i32) (local $q i32) (local $end i32)
    (local $a0 v128) (local $a1 v128) (local $a2 v128) (local $a3 v128)
    (local.set $end (i32.add (local.get $a) (local.get $k)))
    (memory.fill (local.get $y) (i32.const 0) (local.get $n))
    (loop $rows
      (local.set $a0 (v128.load32_splat (local.get $a)))
      (local.set $a1 (v128.load32_splat offset=4 (local.get $a)))
      (local.set $a2 (v128.load32_splat offset=8 (local.get $a)))
      (local.set $a3 (v128.load32_splat offset=12 (local.get $a)))
      (local.set $at (i32.const 0))
      (loop $along
        (local.set $p (i32.add (local.get $b) (local.get $at)))
        (local.set $q (i32.add (local.get $p) (i32.shl (local.get $row) (i32.const 1))))
        (v128.store (i32.add (local.get $y) (local.get $at)) (f32x4.add
          (v128.load (i32.add (local.get $y) (local.get $at)))
          (f32x4.add
            (f32x4.add
              (f32x4.mul (local.get $a0) (v128.load (local.get $p)))
              (f32x4.mul (local.get $a1) (v128.load (i32.add (local.get $p) (local.get $row)))))
            (f32x4.add
              (f32x4.mul (local.get $a2) (v128.load (local.get $q)))
              (f32x4.mul (local.get $a3) (v128.load (i32.add (local.get $q) (local.get $row))))))))
        (local.set $at (i32.add (local.get $at) (i32.const 16)))
        (br_if $along (i32.lt_u (local.get $at) (local.get $n))))
      (local.set $b (i32.add (local.get $b) (i32.shl (local.get $row) (i32.const 2))))
      (local.set $a (i32.add (local.get $a) (i32.const 16)))
      (br_if $rows (i32.lt_u (local.get $a) (local.get $end)))))

  ;; y = a op b: 0 adds, 1 subtracts, 2 multiplies, 3 divides. The next four numbers of a lie `s` further; if 0, its first
  ;; number stands for all. So does `t` for b.
  (func (export "each") (param $op i32) (param $y i32) (param $a i32) (param $s i32) (param $b i32) (param $t i32) (param $n i32)
    (local $end i32) (local $x v128) (local $z v128)
    (local.set $x (v128.load32_splat (local.get $a)))
    (local.set $z (v128.load32_splat (local.get $b)))
    (local.set $end (i32.add (local.get $y) (local.get $n)))
    (loop $along
      (if (local.get $s) (then (local.set $x (v128.load (local.get $a)))))
      (if (local.get $t) (then (local.set $z (v128.load (local.get $b)))))
      (v128.store (local.get $y)
        (if (result v128) (i32.lt_u (local.get $op) (i32.const 2))
          (then (if (result v128) (local.get $op)
            (then (f32x4.sub (local.get $x) (local.get $z)))
            (else (f32x4.add (local.get $x) (local.get $z)))))
          (else (if (result v128) (i32.eq (local.get $op) (i32.const 2))
            (then (f32x4.mul (local.get $x) (local.get $z)))
            (else (f32x4.div (local.get $x) (local.get $z)))))))
      (local.set $a (i32.add (local.get $a) (local.get $s)))
      (local.set $b (i32.add (local.get $b) (local.get $t)))
      (local.set $y (i32.add (local.get $y) (i32.const 16)))
      (br_if $along (i32.lt_u (local.get $y) (local.get $end)))))

  ;; e^x - 1: with x = n ln 2 + r it is 2^n q + (2^n - 1), and q = e^r - 1 is a series, exact near 0.
  (func $grown (param $x v128) (result v128)
    (local $n v128) (local $q v128)
    (local.set $x (f32x4.min (f32x4.max (local.get $x) (f32x4.splat (f32.const -87))) (f32x4.splat (f32.const 88))))
    (local.set $n (f32x4.nearest (f32x4.mul (local.get $x) (f32x4.splat (f32.const 1.44269504)))))
    ;; ln 2 in two parts, of which the first has few digits: its product with n is exact.
    (local.set $x (f32x4.sub (local.get $x) (f32x4.mul (local.get $n) (f32x4.splat (f32.const 0.693359375)))))
    (local.set $x (f32x4.add (local.get $x) (f32x4.mul (local.get $n) (f32x4.splat (f32.const 2.12194440e-4)))))
    (local.set $q (f32x4.splat (f32.const 1.98412698e-4)))
    (local.set $q (f32x4.add (f32x4.mul (local.get $q) (local.get $x)) (f32x4.splat (f32.const 1.38888889e-3))))
    (local.set $q (f32x4.add (f32x4.mul (local.get $q) (local.get $x)) (f32x4.splat (f32.const 8.33333333e-3))))
    (local.set $q (f32x4.add (f32x4.mul (local.get $q) (local.get $x)) (f32x4.splat (f32.const 4.16666667e-2))))
    (local.set $q (f32x4.add (f32x4.mul (local.get $q) (local.get $x)) (f32x4.splat (f32.const 0.166666667))))
    (local.set $q (f32x4.add (f32x4.mul (local.get $q) (local.get $x)) (f32x4.splat (f32.const 0.5))))
    (local.set $q (f32x4.add (f32x4.mul (f32x4.mul (local.get $q) (local.get $x)) (local.get $x)) (local.get $x)))
    (local.set $n (i32x4.shl (i32x4.add (i32x4.trunc_sat_f32x4_s (local.get $n)) (i32x4.splat (i32.const 127))) (i32.const 23)))
    (f32x4.add (f32x4.mul (local.get $n) (local.get $q)) (f32x4.sub (local.get $n) (f32x4.splat (f32.const 1)))))

  ;; y = f(x): 0 is the sigmoid, 1 tanh, 2 the GELU by tanh, which is x times the sigmoid of 2 u.
  (func (export "curve") (param $op i32) (param $y i32) (param $a i32) (param $n i32)
    (local $end i32) (local $x v128) (local $u v128)
    (local.set $end (i32.add (local.get $y) (local.get $n)))
    (loop $along
      (local.set $x (v128.load (local.get $a)))
      (if (i32.eq (local.get $op) (i32.const 1))
        (then
          (local.set $u (call $grown (f32x4.add (local.get $x) (local.get $x))))
          (local.set $u (f32x4.div (local.get $u) (f32x4.add (local.get $u) (f32x4.splat (f32.const 2))))))
        (else
          (local.set $u (f32x4.neg (local.get $x)))
          (if (local.get $op) (then
            (local.set $u (f32x4.mul (local.get $u) (f32x4.add
              (f32x4.splat (f32.const 1.595769122))
              (f32x4.mul (f32x4.mul (local.get $x) (local.get $x)) (f32x4.splat (f32.const 0.0713548163))))))))
          (local.set $u (f32x4.div (f32x4.splat (f32.const 1)) (f32x4.add (call $grown (local.get $u)) (f32x4.splat (f32.const 2)))))
          (if (local.get $op) (then (local.set $u (f32x4.mul (local.get $u) (local.get $x)))))))
      (v128.store (local.get $y) (local.get $u))
      (local.set $a (i32.add (local.get $a) (i32.const 16)))
      (local.set $y (i32.add (local.get $y) (i32.const 16)))
      (br_if $along (i32.lt_u (local.get $y) (local.get $end))))))
