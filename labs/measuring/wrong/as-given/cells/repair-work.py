from lying import work_ns, work_plan
