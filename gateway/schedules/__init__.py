"""What is done at a time, and not because somebody writes: reminders, jobs, watches."""
