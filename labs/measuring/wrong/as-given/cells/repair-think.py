from lying import think_curve, think_plan
