"""The names and parameters of PyBuda's API page, as data for `test_page_of_names`.

A name a line, with its parameters. Names of operators are below `op`, as programs write them.
"""

from __future__ import annotations

from collections.abc import Mapping

_PAGE = """
run_inference module inputs input_count output_queue _sequential _perf_trace _verify_cfg
run_training epochs steps accumulation_steps microbatch_count checkpoint_queue loss_queue \
    checkpoint_interval _sequential _perf_trace _verify_cfg
shutdown
initialize_pipeline training output_queue checkpoint_queue sample_inputs sample_targets \
    microbatch_count d2d_fwd_queues d2d_bwd_queues _sequential _verify_cfg _device_mode
run_forward input_count _sequential
run_backward input_count zero_grad _sequential
run_optimizer checkpoint _sequential
get_parameter_checkpoint device _sequential
get_parameter_gradients device _sequential
update_device_parameters device parameters _sequential
set_configuration_options
set_epoch_break op_names
set_chip_break op_names
override_op_size op_name grid_size
detect_available_devices
op.Matmul name operandA operandB bias
op.Add name operandA operandB
op.Subtract name operandA operandB
op.Multiply name operandA operandB
op.Identity name operandA unsqueeze unsqueeze_dim
op.Buffer name operandA
op.ReduceSum name operandA dim
op.ReduceAvg name operandA dim
op.Constant name constant
op.Heaviside name operandA operandB
op.BinaryStack name operandA operandB dim
op.HSlice name operandA slices
op.HStack name operandA slices
op.VSlice name operandA slices
op.VStack name operandA slices
op.Reshape name operandA shape
op.Index name operandA dim start stop stride
op.Select name operandA dim index stride
op.Pad name operandA pad mode channel_last
op.Concatenate name operands axis
op.Relu name operandA threshold mode
op.Gelu name operandA approximate
op.Sigmoid name operandA
op.Max name operandA operandB
op.Exp name operandA
op.Reciprocal name operandA
op.Sqrt name operandA
op.Log name operandA
op.Argmax name operandA dim
op.Abs name operandA
op.Clip name operandA min max
op.Conv2d name activations weights bias stride padding dilation groups channel_last
op.Conv2dTranspose name activations weights bias stride padding dilation groups channel_last
op.MaxPool2d name activations kernel_size stride padding dilation ceil_mode return_indices \
    max_pool_add_sub_surround max_pool_add_sub_surround_value channel_last
op.AvgPool2d name activations kernel_size stride padding ceil_mode count_include_pad \
    divisor_override channel_last
op.Softmax name operandA dim stable
op.Layernorm name operandA weights bias dim epsilon
Module name
Module.get_device
Module.get_name
Module.run args
PyTorchModule name module redirect_forward
PyTorchModule.forward args kwargs
PyTorchModule.backward args
PyTorchModule.add_parameter name parameter
PyTorchModule.set_parameters kwargs
PyTorchModule.get_parameters
TFModule name module
TFModule.forward args kwargs
TFModule.call args kwargs
TFModule.backward args
OnnxModule name module onnx_path
PyBudaModule name
PyBudaModule.pre_forward args kwargs
PyBudaModule.add_parameter name parameter prepend_name
PyBudaModule.add_constant name prepend_name shape
PyBudaModule.get_constant name
PyBudaModule.set_constant name data
PyBudaModule.get_parameter name
PyBudaModule.get_parameters submodules
PyBudaModule.set_parameter name data
PyBudaModule.load_parameter_dict data
PyBudaModule.insert_tapout_queue_for_op op_name output_index
Device name mp_context
Device.place_module module
Device.place_loss_module module
Device.remove_loss_module
Device.push_to_inputs tensors
Device.push_to_target_inputs tensors
Device.push_to_command_queue cmd
Device.get_command_queue_response
Device.get_next_command command_queue
Device.run_next_command cmd
Device.dc_transfer_thread direction direction_queue
Device.dc_transfer direction
Device.run output_dir
Device.compile_for training microbatch_size microbatch_count
Device.get_first_targets
Device.get_first_inputs peek
Device.shutdown_device
Device.cpueval_backward bw_inputs parameters
Device.generate loop_count write_index
Device.forward loop_count
Device.backward loop_count zero_grad
CPUDevice name optimizer_f scheduler_f mp_context retain_backward_graph module input_dtypes
CPUDevice.forward_pt loop_count
CPUDevice.forward_tf loop_count
CPUDevice.forward loop_count
CPUDevice.backward loop_count zero_grad
CPUDevice.generate loop_count write_index
CPUDevice.compile_for_pt inputs compiler_cfg targets microbatch_size microbatch_count verify_cfg
CPUDevice.compile_for_tf inputs compiler_cfg targets microbatch_size verify_cfg
CPUDevice.compile_for inputs compiler_cfg targets microbatch_size microbatch_count verify_cfg
CPUDevice.cpueval_forward_pt inputs parameters save_for_backward targets
CPUDevice.cpueval_forward_tf inputs parameters save_for_backward targets
CPUDevice.cpueval_forward inputs parameters save_for_backward targets
CPUDevice.cpueval_backward bw_inputs parameters
CPUDevice.place_module module
CPUDevice.pop_parameter_checkpoint
CPUDevice.set_debug_gradient_trace_queue q
CPUDevice.sync
TTDevice name num_chips chip_ids arch devtype device_mode optimizer scheduler fp32_fallback \
    mp_context module
TTDevice.get_device_config compiler_cfg
TTDevice.place_module module
TTDevice.remove_modules
TTDevice.set_active_subgraph subgraph_index
TTDevice.get_active_subgraph
TTDevice.generate_graph inputs target_tensors return_intermediate graph_name compiler_cfg \
    trace_only verify_cfg
TTDevice.compile_for inputs compiler_cfg targets microbatch_size microbatch_count verify_cfg
TTDevice.forward loop_count
TTDevice.generate loop_count write_index tokens_per_iter token_id
TTDevice.cpueval_forward inputs parameters save_for_backward targets
TTDevice.backward loop_count zero_grad
TTDevice.get_parameter_checkpoint
TTDevice.get_all_parameters
TTDevice.get_parameter_gradients
TTDevice.get_parameters ignore_unused_parameters
TTDevice.get_optimizer_params is_buda
TTDevice.get_scheduler_params is_buda
TTDevice.get_dram_io_queues queue_type
TTDevice.shutdown_device
TTDevice.sync
DataFormat
DataFormat.Float32
DataFormat.Float16
DataFormat.Bfp8
DataFormat.Bfp4
DataFormat.Bfp2
DataFormat.Float16_b
DataFormat.Bfp8_b
DataFormat.Bfp4_b
DataFormat.Bfp2_b
DataFormat.Lf8
DataFormat.UInt16
DataFormat.Int8
DataFormat.RawUInt8
DataFormat.RawUInt16
DataFormat.RawUInt32
DataFormat.Int32
DataFormat.Invalid
DataFormat.from_json
DataFormat.name
DataFormat.to_json
MathFidelity
MathFidelity.LoFi
MathFidelity.HiFi2
MathFidelity.HiFi3
MathFidelity.HiFi4
MathFidelity.Invalid
"""

_OPTIONS = """
enable_recompute balancer_policy place_on_one_row enable_t_streaming manual_t_streaming
enable_consteval default_df_override accumulate_df math_fidelity performance_trace
backend_opt_level backend_output_dir backend_device_descriptor_path
backend_cluster_descriptor_path backend_runtime_params_path backend_runtime_args
enable_auto_fusing enable_conv_prestride enable_stable_softmax amp_level harvested_rows
store_backend_db_to_yaml input_queues_on_host output_queues_on_host
enable_auto_transposing_placement use_interactive_placer op_intermediates_to_save
enable_enumerate_u_kt enable_device_tilize dram_placement_algorithm chip_placement_policy
enable_forked_dram_inputs device_config
"""
_BEYOND = """
Adam AdamW CompilerConfig LAMB LARS SGD configure_mixed_precision insert_buffering_nop insert_nop
override_dram_queue_placement
BackendDevice BackendType CompileDepth JaxModule MXNetModule Parameter Parameter.create_from_torch
Parameter.set_data_format PerfTraceLevel PyBudaError TFLiteModule
OnnxModule.get_parameters
TTDevice.compile_to_image TTDevice.load_image TTDevice.optimizer
TTDeviceImage TTDeviceImage.from_disk TTDeviceImage.get_input_shapes TTDeviceImage.info
TTDeviceImage.load_from_disk TTDeviceImage.save_to_disk Tensor
Tensor.create_from_torch Tensor.to_framework Tensor.to_pytorch Tensor.value VerifyConfig config
error_raised get_intermediates_queue get_loss_queue get_tenstorrent_device op
op.loss.CrossEntropyLoss op.loss.L1Loss op.nn optimizers optimizers.Adam optimizers.AdamW
optimizers.LAMB optimizers.LARS optimizers.SGD pybuda_compile pybuda_reset query run_generate
run_schedulers schedulers schedulers.LearningRateScheduler set_device_pipeline sync
tensor.TensorFromPytorch
torch_schedulers torch_schedulers.TorchLearningRateScheduler transformers.pipeline.pipeline verify
verify.verify_module verify.verify_module_pipeline
_C.NodeEpochType _C.placer compile pybudaglobal run.api utils
"""

DOCUMENTED: Mapping[str, tuple[str, ...]] = {
    name: tuple(parameters) for name, *parameters in map(str.split, _PAGE.strip().splitlines())
}
"""Parameters by name."""
OPTIONS = tuple(_OPTIONS.split())
"""What `set_configuration_options` takes."""
BEYOND = tuple(_BEYOND.split())
"""Names that programs use and the page does not have."""
