# Communicator over c10d::ProcessGroupGloo. target_sources(cp_core_base PRIVATE ...).
