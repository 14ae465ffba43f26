from lying import sharing_factor, sharing_plan
