// Newton's way to the square root of 2, until a step changes nothing: a loop without a known number of iterations.
//   weft run examples/stablehlo/sqrt2.mlir
module @sqrt2 {
  func.func public @main() -> (tensor<f64>, tensor<i32>) {
    %one = stablehlo.constant dense<1.0> : tensor<f64>
    %two = stablehlo.constant dense<2.0> : tensor<f64>
    %half = stablehlo.constant dense<0.5> : tensor<f64>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %next = stablehlo.constant dense<1> : tensor<i32>
    %r:3 = stablehlo.while(%x = %one, %before = %two, %steps = %zero) : tensor<f64>, tensor<f64>, tensor<i32>
    cond {
      %goes_on = stablehlo.compare NE, %x, %before : (tensor<f64>, tensor<f64>) -> tensor<i1>
      stablehlo.return %goes_on : tensor<i1>
    } do {
      %over = stablehlo.divide %two, %x : tensor<f64>
      %sum = stablehlo.add %x, %over : tensor<f64>
      %better = stablehlo.multiply %half, %sum : tensor<f64>
      %more = stablehlo.add %steps, %next : tensor<i32>
      stablehlo.return %better, %x, %more : tensor<f64>, tensor<f64>, tensor<i32>
    }
    return %r#0, %r#2 : tensor<f64>, tensor<i32>
  }
}
