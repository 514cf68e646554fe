# The event stream's views (reporters/) and the command line (cli/).
