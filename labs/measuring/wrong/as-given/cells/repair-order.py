from lying import compare_plan, speed_up
