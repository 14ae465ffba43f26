from lying import predict
