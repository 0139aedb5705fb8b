"""Calls of torch functions for the tests of the torch front end, as expressions over one tensor x of shape [2, 4, 3, 5]."""

# One output element from the same element of the operands.
POINTWISE = [
    "torch.exp(x)", "x.exp2()", "torch.log(x)", "x.sqrt()", "torch.rsqrt(x)", "x.sin()", "x.cos()", "x.tanh()",
    "x.sigmoid()", "x.erf()", "x.floor()", "x.ceil()", "x.round()", "x.trunc()", "x.neg()", "-x", "abs(x)", "x.abs()",
    "x.sign()", "x.logical_not()", "~x", "x.isnan()", "x.isinf()", "x.isfinite()", "x.reciprocal()", "x.square()", "torch.deg2rad(x)", "x.rad2deg()", "torch.deg2rad(input=x[:1, :3])", "x[:, :1].permute(3, 1, 0, 2).rad2deg()", "torch.rad2deg(x.to(torch.int8))",
    "x.frac()", "x+1", "x+1.5", "1+x", "1-x", "x-1", "x-0.1", "0.3*x", "x*2", "x*0.1", "x/2", "x/3", "1/x", "2.5/x",
    "x//2", "x//2.5", "x%3", "x%2.5", "x**2", "x**3", "x**0.5", "x**-1", "x**2.5", "2**x", "2.0**x", "x>0", "x>0.5",
    "x<=1", "x==1", "x!=0", "0<x", "x&1", "x|True", "x^x", "x&x", "x<<1", "x>>1", "x+True", "x*True",
    "torch.add(x,x,alpha=2)", "torch.sub(x,x,alpha=0.5)", "x.clamp(0,1)", "x.clamp(min=0.5)", "x.clamp(max=1)",
    "torch.clamp_min(x,0)", "torch.maximum(x,x)", "torch.where(x>0,x,0)", "torch.where(x>0,x,-x)",
    "torch.where(x>0,1.0,0.0)", "torch.where(x>0,x,float('-inf'))", "x.masked_fill(x>0,0)", "x.masked_fill(x>0,1.5)",
    "x.masked_fill(x>0,float('-inf'))", "torch.lerp(x,x*2,0.3)", "torch.addcmul(x,x,x,value=0.5)",
    "torch.addcdiv(x,x,x+10)", "torch.div(x,2,rounding_mode='floor')", "torch.div(x,2,rounding_mode='trunc')",
    "torch.fmod(x,3)", "torch.atan2(x,x+1)", "F.relu(x)", "torch.relu(x)", "x.relu()", "F.relu6(x)",
    "F.leaky_relu(x)", "F.leaky_relu(x,0.2)", "F.elu(x)", "F.celu(x,2.0)", "F.selu(x)", "F.silu(x)", "F.gelu(x)",
    "F.gelu(x,approximate='tanh')", "F.softplus(x)", "F.softplus(x,2,5)", "F.hardtanh(x)", "F.hardtanh(x,-2,3)",
    "F.hardswish(x)", "F.hardsigmoid(x)", "F.mish(x)", "F.logsigmoid(x)", "F.sigmoid(x)", "F.softsign(x)",
    "F.tanhshrink(x)", "torch.nan_to_num(x)", "torch.logical_and(x,x>0)", "torch.signbit(x)", "+x",
    "x+torch.tensor(0.1)", "x*torch.tensor(0.1)", "torch.tensor(0.1)*x", "torch.tensor(2)*x", "x/torch.tensor(3.0)",
    "x+x.sum()", "torch.pow(x,x)", "torch.remainder(x,2)", "x.float()", "x.double()", "x.half()",
    "x.to(torch.bfloat16)", "x.int()", "x.long()", "x.bool()", "x.to(torch.float32)", "x.type_as(x)", "x.to('cpu')",
    "x.to(dtype=torch.float64)", "x.clone()", "x.contiguous()", "x.detach()+1", "torch.zeros_like(x)",
    "torch.ones_like(x,dtype=torch.float64)", "torch.full_like(x,2)", "x.new_zeros(2,3)", "x.new_ones((2,))",
    "x.new_full((2,2),3)", "torch.rsub(x,2)", "torch.positive(x)", "x.expm1()", "x.log1p()", "x.tan()", "x.atan()",
    "x.sinh()", "x.asinh()", "torch.hypot(x,x)", "torch.copysign(x,-x)", "torch.fmax(x,x*0.5)",
    "F.dropout(x,0.5,False)", "F.threshold(x,0.1,0.0)", "x.mul(x).add(1).div(2)", "F.normalize(x,dim=-1)",
    "F.pad(x,(1,2))", "F.pad(x,(1,2,0,1),value=3)", "torch.diff(x)", "torch.diff(x,dim=0)", "x.flip(0)",
    "x.flip(-1,0)", "x.roll(1,0)", "x.roll((1,-2),(0,1))", "x.tril()", "x.triu(1)", "x.tril(-1)",
    "torch.cat([x,x],0)", "torch.cat([x,x*2],-1)", "torch.stack([x,x],0)", "torch.stack([x,x],-1)",
    "torch.hstack([x,x])", "torch.vstack([x,x])", "x.repeat(1,2,1,1)", "x.repeat(2,1,1,1,1)",
]

# Reductions, scans and what is made of them.
REDUCTIONS = [
    "x.sum()", "x.sum(1)", "x.sum((0,-1))", "x.sum(-1,keepdim=True)", "x.sum(dtype=torch.float64)", "x.mean()",
    "x.mean(1)", "x.mean((2,3),keepdim=True)", "x.mean(dtype=torch.float32)", "x.prod()", "x.prod(1)", "x.amax()",
    "x.amax(1)", "x.amin((0,1))", "x.max()", "x.min()", "x.max(1)", "x.min(-1,keepdim=True)", "x.max(1)[0]",
    "x.max(1).values", "x.max(1).indices", "x.any()", "x.any(1)", "x.all()", "x.all(1,keepdim=True)", "x.argmax()",
    "x.argmax(1)", "x.argmin(-1,keepdim=True)", "x.argmax(keepdim=True)", "x.var()", "x.var(1)",
    "x.std(1,unbiased=False)", "x.var(dim=-1,correction=0)", "x.std()", "torch.var(x,1,keepdim=True)", "x.norm()",
    "x.norm(dim=1)", "torch.norm(x,2,1)", "torch.norm(x,1)", "torch.linalg.vector_norm(x,dim=1)",
    "torch.logsumexp(x,1)", "x.cumsum(1)", "x.cumsum(-1)", "x.cumprod(0)", "x.softmax(1)", "F.softmax(x,-1)",
    "F.softmax(x,dim=1)", "torch.softmax(x,0,dtype=torch.float32)", "F.log_softmax(x,-1)",
    "F.max_pool2d(x,2)", "F.max_pool2d(x,(3,5))", "F.max_pool2d(x.transpose(2,3).contiguous(),(1,3))", "F.max_pool2d(x,(2,3),stride=1)", "torch.max_pool2d(x,2,(1,2))", "F.max_pool2d(x,3,padding=1)",
    "F.max_pool2d(x,2,ceil_mode=True)", "F.max_pool2d(x[0],(3,1))", "F.max_pool2d(x,1)", "F.max_pool2d(x,2,return_indices=True)[0]",
    "F.batch_norm(x,None,None,training=True)", "F.batch_norm(x,None,None,x[0,0,0,:4],x[0,0,1,:4],True)",
    "F.batch_norm(x.reshape(8,15),None,None,training=True,eps=0.1)",
    "F.layer_norm(x,x.shape[-1:])", "F.layer_norm(x,x.shape[-2:])", "F.rms_norm(x,x.shape[-1:])", "F.group_norm(x,2)",
    "F.mse_loss(x,x*0.5)", "F.l1_loss(x,x*0.5,reduction='sum')", "F.mse_loss(x,x+1,reduction='none')", "x.nansum()",
    "x.sum([])", "x.sum(0).sum(0).mean()", "torch.max(x,x*2)",
]

# Views, copies, indexing, products and questions about metadata.
SHAPES = [
    "x.reshape(-1)", "x.reshape(2,-1)", "x.reshape(x.shape)", "x.flatten()", "x.flatten(1)", "x.flatten(2,3)",
    "x.transpose(1,2)", "x.permute(0,2,1,3)", "x.permute((3,2,1,0))", "x.mT", "x.movedim(1,-1)", "x.squeeze()",
    "x.squeeze(0)", "x.unsqueeze(0)", "x.unsqueeze(-1)", "x.unsqueeze(2)", "x[:,None].expand(-1,3,-1,-1,-1)",
    "x.expand(2,4,3,5)", "x.expand_as(x)", "x.narrow(1,1,2)", "x.unfold(1,2,1)", "x.unfold(-1,2,3)*2", "x.select(1,1)", "x.split(2,1)", "x.split([1,3],1)",
    "torch.split(x,3,-1)", "x.chunk(2,1)", "x.chunk(3,-1)", "x.unbind(1)", "x[0]", "x[:,1]", "x[...,1]", "x[:,1:3]",
    "x[::2]", "x[...,None]", "x[None]", "x[:,:,-1]", "x[0,1,2,3]", "x[1:,::2,:,-2:]", "x.unflatten(1,(2,2))",
    "x.swapaxes(0,1)", "x.numel()", "x.size()", "x.size(1)", "x.shape", "x.dim()", "x.ndim", "x.stride()",
    "x.is_contiguous()", "x.dtype", "x.device", "x.is_floating_point()", "x.element_size()", "len(x)",
    "x[torch.tensor([0,1])]", "x[:,torch.tensor([2,0,1])]", "torch.index_select(x,1,torch.tensor([0,2]))",
    "torch.gather(x,1,torch.zeros(2,2,3,5,dtype=torch.long))", "torch.broadcast_tensors(x,x[:1])",
    "x.reshape(2,4,15)", "x.transpose(1,2).reshape(2,3,-1)", "x.transpose(1,2).contiguous().view(2,3,20)",
    "torch.atleast_1d(x)", "x.tile(2)", "x.mean(1).unsqueeze(1)+x",
    "(x-x.mean(-1,keepdim=True))/(x.std(-1,keepdim=True)+1e-5)", "F.linear(x,torch.ones(6,5))",
    "F.linear(x,torch.ones(6,5),torch.ones(6))", "x@x.mT", "x.matmul(x.transpose(-1,-2))", "torch.numel(x)",
    "x.is_cuda", "torch.is_tensor(x)", "torch.outer(x[0,0,0],x[0,0,1])", "torch.dot(x[0,0,0],x[0,0,1])",
    "torch.mm(x[0,0],x[0,0].T)", "torch.bmm(x[0],x[0].mT)", "torch.addmm(torch.ones(3),x[0,0],x[0,0].T)",
    "torch.baddbmm(torch.ones(4,3,3),x[0],x[0].mT,alpha=0.5)", "F.embedding(torch.tensor([0,1]),x[0,0])",
    "x[0,0]@x[0,0,0]", "x[0,0,0]@x[0,0,0]", "x[0,0]@x[0].mT",
]

# Tensors made from numbers.
CREATION = [
    "torch.zeros(2,3)", "torch.ones((2,),dtype=torch.int64)", "torch.arange(5)", "torch.arange(1,7,2)",
    "torch.arange(0,1,0.1)", "torch.arange(5,0,-2)", "torch.arange(5.0)", "torch.arange(5,dtype=torch.float32)",
    "torch.full((2,3),1.5)", "torch.full((2,),7)", "torch.eye(3)", "torch.tensor([1,2,3])",
    "torch.tensor([[1.0,2],[3,4]])", "torch.tensor(5)", "torch.tensor(True)", "torch.scalar_tensor(3)",
    "torch.zeros(0)", "torch.meshgrid(torch.arange(2),torch.arange(3),indexing='ij')",
    "torch.meshgrid(torch.arange(2),torch.arange(3),indexing='xy')", "torch.linspace(0,1,5)",
]

# Statements that write into y, a copy of x.
WRITES = [
    "y.add_(1)", "y.mul_(y)", "y.sub_(0.5,alpha=2)", "y.div_(3)", "y.relu_()", "y.clamp_(0,1)", "y.clamp_min_(0)",
    "y.exp_()", "y.neg_()", "y.copy_(x)", "y.fill_(3)", "y.zero_()", "y.masked_fill_(x>0,-1)", "y.pow_(2)",
    "y.sigmoid_()", "y.tanh_()", "y.add_(y.sum())", "y.lerp_(x,0.5)", "y.addcmul_(x,x)", "y.floor_()",
    "y.logical_not_()", "y.eq_(1)", "F.relu(y,inplace=True)", "F.silu(y,True)", "F.hardtanh(y,inplace=True)",
    "F.leaky_relu(y,0.1,True)", "torch.relu_(y)", "y[0]=1", "y[:,1:3]=0.5", "y[...,0]+=2", "y[x>0]=0",
    "y[0,1]=y[1,0]*2", "y[:]=x.sum()", "y[:,0]=torch.tensor([1,2,3,4,5])", "y.transpose(0,1).add_(1)",
    "y[:,::2].zero_()", "y+=1", "y*=x", "y-=1", "y/=2", "y**=2", "y//=2", "y%=3", "y&=y", "y|=(x>0)", "y+=1.5",
    "torch.add(x,1,out=y)", "torch.maximum(y,x.flip(0),out=y)", "torch.mul(x,y,out=y)", "torch.exp(x,out=y)", "torch.sum(x,1,out=y[:,0])",
    "torch.neg(y[:,1:],out=y[:,:-1])", "torch.add(x,1,out=y[0])", "torch.sub(x,1,out=y.transpose(1,2).contiguous().transpose(1,2))",
]
