# Communicator over c10d::ProcessGroupGloo.
target_sources(cp_core_base PRIVATE comm/gloo_communicator.cpp comm/gloo_mesh.cpp)
target_link_libraries(cp_core_base PUBLIC GlooHeaders::headers)

cp_pool_test(gloo_communicator_test LABEL unit TORCH SOURCES comm/gloo_communicator_test.cpp LIBRARIES cp_core)
