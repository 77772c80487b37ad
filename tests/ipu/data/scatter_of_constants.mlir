module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<0x1x3xui32>) -> (tensor<3x5x9xui32> {jax.result_info = "result[0]"}, tensor<3x5x1x3x0x1xui32> {jax.result_info = "result[1]"}, tensor<0x1x3xui32> {jax.result_info = "result[2]"}, tensor<3x1x0xui32> {jax.result_info = "result[3]"}, tensor<3x1x0xui32> {jax.result_info = "result[4]"}) {
    %c = stablehlo.constant dense<> : tensor<0x1xui32>
    %c_0 = stablehlo.constant dense<[[[2]], [[1]], [[0]], [[0]], [[0]]]> : tensor<5x1x1xui32>
    %c_1 = stablehlo.constant dense<0> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<> : tensor<3x1x0xui32>
    %c_3 = stablehlo.constant dense<> : tensor<1x5x9x0xui32>
    %0 = stablehlo.reverse %arg0, dims = [1] : tensor<0x1x3xui32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<0x1x3xui32>
    %2 = stablehlo.transpose %0, dims = [2, 1, 0] : (tensor<0x1x3xui32>) -> tensor<3x1x0xui32>
    %c_4 = stablehlo.constant dense<2147483647> : tensor<i32>
    %c_5 = stablehlo.constant dense<1> : tensor<i32>
    %3 = stablehlo.and %c_4, %c_5 : tensor<i32>
    %c_6 = stablehlo.constant dense<1> : tensor<i32>
    %4 = stablehlo.compare EQ, %3, %c_6, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %5 = stablehlo.convert %4 : (tensor<i1>) -> tensor<i32>
    %6 = "stablehlo.case"(%5) ({
      stablehlo.return %2 : tensor<3x1x0xui32>
    }, {
      %20 = stablehlo.reshape %1 : (tensor<0x1x3xui32>) -> tensor<3x1x0xui32>
      stablehlo.return %20 : tensor<3x1x0xui32>
    }) : (tensor<i32>) -> tensor<3x1x0xui32>
    %7 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 4] : (tensor<0x1x3xui32>) -> tensor<0x1x1x3x3x5xui32>
    %8 = stablehlo.dot_general %0, %c, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<0x1x3xui32>, tensor<0x1xui32>) -> tensor<3xui32>
    %9 = stablehlo.slice %8 [0:1] : (tensor<3xui32>) -> tensor<1xui32>
    %10 = stablehlo.reshape %9 : (tensor<1xui32>) -> tensor<ui32>
    %11 = stablehlo.convert %10 : (tensor<ui32>) -> tensor<i32>
    %c_7 = stablehlo.constant dense<7> : tensor<i32>
    %12 = stablehlo.and %11, %c_7 : tensor<i32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %c_9 = stablehlo.constant dense<3> : tensor<i32>
    %13 = stablehlo.clamp %c_8, %12, %c_9 : tensor<i32>
    %14 = "stablehlo.case"(%13) ({
      stablehlo.return %arg0 : tensor<0x1x3xui32>
    }, {
      %20 = stablehlo.reshape %2 : (tensor<3x1x0xui32>) -> tensor<0x1x3xui32>
      stablehlo.return %20 : tensor<0x1x3xui32>
    }, {
      %20 = stablehlo.transpose %arg0, dims = [2, 1, 0] : (tensor<0x1x3xui32>) -> tensor<3x1x0xui32>
      %c_11 = stablehlo.constant dense<0> : tensor<ui32>
      %21 = stablehlo.broadcast_in_dim %c_11, dims = [] : (tensor<ui32>) -> tensor<3x3x1x0xui32>
      %c_12 = stablehlo.constant dense<0> : tensor<i32>
      %22:6 = stablehlo.while(%iterArg = %20, %iterArg_13 = %c_0, %iterArg_14 = %c_1, %iterArg_15 = %c_12, %iterArg_16 = %20, %iterArg_17 = %21) : tensor<3x1x0xui32>, tensor<5x1x1xui32>, tensor<1xi32>, tensor<i32>, tensor<3x1x0xui32>, tensor<3x3x1x0xui32>
      cond {
        %c_18 = stablehlo.constant dense<3> : tensor<i32>
        %24 = stablehlo.compare LT, %iterArg_15, %c_18, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %24 : tensor<i1>
      } do {
        %24 = func.call @dynamic_index_in_dim(%iterArg, %iterArg_15) : (tensor<3x1x0xui32>, tensor<i32>) -> tensor<1x0xui32>
        %25:2 = func.call @closed_call(%iterArg_13, %iterArg_14, %iterArg_16, %24) : (tensor<5x1x1xui32>, tensor<1xi32>, tensor<3x1x0xui32>, tensor<1x0xui32>) -> (tensor<3x1x0xui32>, tensor<3x1x0xui32>)
        %26 = func.call @dynamic_update_index_in_dim(%iterArg_17, %25#1, %iterArg_15) : (tensor<3x3x1x0xui32>, tensor<3x1x0xui32>, tensor<i32>) -> tensor<3x3x1x0xui32>
        %c_18 = stablehlo.constant dense<1> : tensor<i32>
        %27 = stablehlo.add %iterArg_15, %c_18 : tensor<i32>
        stablehlo.return %iterArg, %iterArg_13, %iterArg_14, %27, %25#0, %26 : tensor<3x1x0xui32>, tensor<5x1x1xui32>, tensor<1xi32>, tensor<i32>, tensor<3x1x0xui32>, tensor<3x3x1x0xui32>
      }
      %23 = stablehlo.reshape %22#5 : (tensor<3x3x1x0xui32>) -> tensor<0x1x3xui32>
      stablehlo.return %23 : tensor<0x1x3xui32>
    }, {
      stablehlo.return %arg0 : tensor<0x1x3xui32>
    }) : (tensor<i32>) -> tensor<0x1x3xui32>
    %15 = stablehlo.transpose %7, dims = [4, 5, 2, 3, 0, 1] : (tensor<0x1x1x3x3x5xui32>) -> tensor<3x5x1x3x0x1xui32>
    %16 = stablehlo.dot_general %14, %c_3, contracting_dims = [1, 0] x [0, 3], precision = [DEFAULT, DEFAULT] : (tensor<0x1x3xui32>, tensor<1x5x9x0xui32>) -> tensor<3x5x9xui32>
    %c_10 = stablehlo.constant dense<622859140> : tensor<ui32>
    %17 = stablehlo.broadcast_in_dim %c_10, dims = [] : (tensor<ui32>) -> tensor<3x5x1x3x0x1xui32>
    %18 = stablehlo.clamp %15, %15, %17 : tensor<3x5x1x3x0x1xui32>
    %19 = stablehlo.clamp %arg0, %0, %0 : tensor<0x1x3xui32>
    return %16, %18, %19, %2, %6 : tensor<3x5x9xui32>, tensor<3x5x1x3x0x1xui32>, tensor<0x1x3xui32>, tensor<3x1x0xui32>, tensor<3x1x0xui32>
  }
  func.func private @dynamic_index_in_dim(%arg0: tensor<3x1x0xui32>, %arg1: tensor<i32>) -> tensor<1x0xui32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %arg0, %arg1, %c, %c_0, sizes = [1, 1, 0] : (tensor<3x1x0xui32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x1x0xui32>
    %1 = stablehlo.reshape %0 : (tensor<1x1x0xui32>) -> tensor<1x0xui32>
    return %1 : tensor<1x0xui32>
  }
  func.func private @closed_call(%arg0: tensor<5x1x1xui32>, %arg1: tensor<1xi32>, %arg2: tensor<3x1x0xui32>, %arg3: tensor<1x0xui32>) -> (tensor<3x1x0xui32>, tensor<3x1x0xui32>) {
    %0 = stablehlo.reshape %arg0 : (tensor<5x1x1xui32>) -> tensor<5x1xui32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %1 = call @clip(%0, %c, %c_0) : (tensor<5x1xui32>, tensor<i32>, tensor<i32>) -> tensor<5x1xui32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<5x1xui32>) -> tensor<5x1x1xui32>
    %c_1 = stablehlo.constant dense<0> : tensor<ui32>
    %3 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<ui32>) -> tensor<5x1x1x0xui32>
    %c_2 = stablehlo.constant dense<1> : tensor<i32>
    %c_3 = stablehlo.constant dense<3> : tensor<i32>
    %4 = stablehlo.and %c_2, %c_3 : tensor<i32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %5:6 = stablehlo.while(%iterArg = %3, %iterArg_5 = %arg1, %iterArg_6 = %c_4, %iterArg_7 = %4, %iterArg_8 = %arg2, %iterArg_9 = %arg2) : tensor<5x1x1x0xui32>, tensor<1xi32>, tensor<i32>, tensor<i32>, tensor<3x1x0xui32>, tensor<3x1x0xui32>
    cond {
      %6 = stablehlo.compare LT, %iterArg_6, %iterArg_7, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %6 : tensor<i1>
    } do {
      %c_10 = stablehlo.constant dense<1> : tensor<i32>
      %6 = stablehlo.add %iterArg_6, %c_10 : tensor<i32>
      %7 = stablehlo.convert %iterArg_6 : tensor<i32>
      %c_11 = stablehlo.constant dense<0> : tensor<ui32>
      %c_12 = stablehlo.constant dense<0> : tensor<ui32>
      %8:2 = stablehlo.reduce(%iterArg_9 init: %c_11), (%iterArg_9 init: %c_12) across dimensions = [2, 0] : (tensor<3x1x0xui32>, tensor<3x1x0xui32>, tensor<ui32>, tensor<ui32>) -> (tensor<1xui32>, tensor<1xui32>)
       reducer(%arg4: tensor<ui32>, %arg6: tensor<ui32>) (%arg5: tensor<ui32>, %arg7: tensor<ui32>)  {
        %28 = stablehlo.compare GT, %arg4, %arg6, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
        %29 = stablehlo.compare EQ, %arg4, %arg6, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
        %30 = stablehlo.compare GE, %arg5, %arg7, UNSIGNED : (tensor<ui32>, tensor<ui32>) -> tensor<i1>
        %31 = stablehlo.and %29, %30 : tensor<i1>
        %32 = stablehlo.or %28, %31 : tensor<i1>
        %33 = func.call @_where(%32, %arg4, %arg6) : (tensor<i1>, tensor<ui32>, tensor<ui32>) -> tensor<ui32>
        %34 = func.call @_where(%32, %arg5, %arg7) : (tensor<i1>, tensor<ui32>, tensor<ui32>) -> tensor<ui32>
        stablehlo.return %33, %34 : tensor<ui32>, tensor<ui32>
      }
      %c_13 = stablehlo.constant dense<5> : tensor<i8>
      %c_14 = stablehlo.constant dense<0> : tensor<i8>
      %9 = stablehlo.compare LT, %c_13, %c_14, SIGNED : (tensor<i8>, tensor<i8>) -> tensor<i1>
      %c_15 = stablehlo.constant dense<5> : tensor<i8>
      %c_16 = stablehlo.constant dense<3> : tensor<i8>
      %10 = stablehlo.add %c_15, %c_16 : tensor<i8>
      %c_17 = stablehlo.constant dense<5> : tensor<i8>
      %11 = stablehlo.select %9, %10, %c_17 : tensor<i1>, tensor<i8>
      %c_18 = stablehlo.constant dense<-3> : tensor<i8>
      %c_19 = stablehlo.constant dense<0> : tensor<i8>
      %12 = stablehlo.compare LT, %c_18, %c_19, SIGNED : (tensor<i8>, tensor<i8>) -> tensor<i1>
      %c_20 = stablehlo.constant dense<-3> : tensor<i8>
      %c_21 = stablehlo.constant dense<1> : tensor<i8>
      %13 = stablehlo.add %c_20, %c_21 : tensor<i8>
      %c_22 = stablehlo.constant dense<-3> : tensor<i8>
      %14 = stablehlo.select %12, %13, %c_22 : tensor<i1>, tensor<i8>
      %c_23 = stablehlo.constant dense<2> : tensor<i8>
      %c_24 = stablehlo.constant dense<0> : tensor<i8>
      %15 = stablehlo.compare LT, %c_23, %c_24, SIGNED : (tensor<i8>, tensor<i8>) -> tensor<i1>
      %c_25 = stablehlo.constant dense<2> : tensor<i8>
      %c_26 = stablehlo.constant dense<0> : tensor<i8>
      %16 = stablehlo.add %c_25, %c_26 : tensor<i8>
      %c_27 = stablehlo.constant dense<2> : tensor<i8>
      %17 = stablehlo.select %15, %16, %c_27 : tensor<i1>, tensor<i8>
      %18 = stablehlo.dynamic_slice %iterArg_8, %11, %14, %17, sizes = [3, 1, 0] : (tensor<3x1x0xui32>, tensor<i8>, tensor<i8>, tensor<i8>) -> tensor<3x1x0xui32>
      %c_28 = stablehlo.constant dense<0> : tensor<ui32>
      %c_29 = stablehlo.constant dense<0> : tensor<1xi32>
      %c_30 = stablehlo.constant dense<2147483647> : tensor<i32>
      %19 = stablehlo.broadcast_in_dim %c_30, dims = [] : (tensor<i32>) -> tensor<1xi32>
      %20 = stablehlo.minimum %c_29, %19 : tensor<1xi32>
      %c_31 = stablehlo.constant dense<0> : tensor<i32>
      %21 = stablehlo.broadcast_in_dim %c_31, dims = [] : (tensor<i32>) -> tensor<1xi32>
      %22 = stablehlo.clamp %21, %iterArg_5, %20 : tensor<1xi32>
      %23 = "stablehlo.scatter"(%8#1, %22, %c_28) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>, unique_indices = false}> ({
      ^bb0(%arg4: tensor<ui32>, %arg5: tensor<ui32>):
        %c_32 = stablehlo.constant dense<3> : tensor<ui32>
        %28 = stablehlo.multiply %arg4, %c_32 : tensor<ui32>
        %c_33 = stablehlo.constant dense<1> : tensor<ui32>
        %29 = stablehlo.add %28, %c_33 : tensor<ui32>
        stablehlo.return %29 : tensor<ui32>
      }) : (tensor<1xui32>, tensor<1xi32>, tensor<ui32>) -> tensor<1xui32>
      %24 = stablehlo.slice %23 [0:0] : (tensor<1xui32>) -> tensor<0xui32>
      %25 = stablehlo.reshape %24 : (tensor<0xui32>) -> tensor<3x1x0xui32>
      %26 = stablehlo.slice %8#0 [0:0] : (tensor<1xui32>) -> tensor<0xui32>
      %27 = stablehlo.reshape %26 : (tensor<0xui32>) -> tensor<3x1x0xui32>
      stablehlo.return %iterArg, %iterArg_5, %6, %iterArg_7, %25, %27 : tensor<5x1x1x0xui32>, tensor<1xi32>, tensor<i32>, tensor<i32>, tensor<3x1x0xui32>, tensor<3x1x0xui32>
    }
    return %5#4, %5#5 : tensor<3x1x0xui32>, tensor<3x1x0xui32>
  }
  func.func private @clip(%arg0: tensor<5x1xui32>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<5x1xui32> {
    %0 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<ui32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<ui32>) -> tensor<5x1xui32>
    %2 = stablehlo.maximum %1, %arg0 : tensor<5x1xui32>
    %3 = stablehlo.convert %arg2 : (tensor<i32>) -> tensor<ui32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [] : (tensor<ui32>) -> tensor<5x1xui32>
    %5 = stablehlo.minimum %4, %2 : tensor<5x1xui32>
    return %5 : tensor<5x1xui32>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<ui32>, %arg2: tensor<ui32>) -> tensor<ui32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<i1>, tensor<ui32>
    return %0 : tensor<ui32>
  }
  func.func private @dynamic_update_index_in_dim(%arg0: tensor<3x3x1x0xui32>, %arg1: tensor<3x1x0xui32>, %arg2: tensor<i32>) -> tensor<3x3x1x0xui32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [1, 2, 3] : (tensor<3x1x0xui32>) -> tensor<1x3x1x0xui32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.dynamic_update_slice %arg0, %0, %arg2, %c, %c_0, %c_1 : (tensor<3x3x1x0xui32>, tensor<1x3x1x0xui32>, tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<3x3x1x0xui32>
    return %1 : tensor<3x3x1x0xui32>
  }
}

