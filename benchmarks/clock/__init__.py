"""What `schedule_clock` is made of."""
