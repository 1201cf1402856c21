// Numbers under the pointer in the static chart of memory over time.
for(const figure of document.querySelectorAll("figure[data-hover]")){
 const data=JSON.parse(figure.querySelector("script").textContent),svg=figure.querySelector("svg"),
  hair=figure.querySelector(".hair"),tip=figure.querySelector(".tip");
 const size=b=>b>=4294967296?(b/1073741824).toFixed(2)+" GiB":b>=1048576?(b/1048576).toFixed(1)+" MiB":b>=1024?(b/1024).toFixed(1)+" KiB":b+" B";
 svg.addEventListener("pointermove",event=>{
  const box=svg.getBoundingClientRect(),x=(event.clientX-box.left)/box.width*data.width;
  let best=0;
  data.x.forEach((at,i)=>{if(Math.abs(at-x)<Math.abs(data.x[best]-x))best=i});
  let total=0,lines=[];
  data.labels.forEach((label,c)=>{const b=data.bytes[c][best];total+=b;if(b)lines.unshift(label.padEnd(17)+size(b))});
  tip.textContent=(data.steps[best]?"step "+data.steps[best]+", ":"")+data.phases[data.phase[best]]+"\n"+size(total)+" live\n"+lines.join("\n");
  hair.setAttribute("x1",data.x[best]);hair.setAttribute("x2",data.x[best]);hair.style.visibility=tip.style.visibility="visible";
  const left=data.x[best]/data.width*box.width;
  tip.style.left=(left>box.width/2?left-tip.offsetWidth-12:left+12)+"px";tip.style.top="36px";});
 svg.addEventListener("pointerleave",()=>{hair.style.visibility=tip.style.visibility="hidden"});
}
